// The conversation with the server: jobs by number, answers to whoever asked; it is opened again after a break.

let socket = null, number = 0;
const jobs = new Map(); // number → function that hears its answers
const tellAll = (told) => jobs.forEach((heard) => heard(told));

function open() {
	if (socket?.readyState <= WebSocket.OPEN) return socket;
	socket = new WebSocket(`ws://${location.host}/talk`);
	socket.onmessage = ({ data }) => {
		for (const told of JSON.parse(data)) told.did === "dropped" ? tellAll(told) : jobs.get(told.job)?.(told);
	};
	socket.onclose = () => {
		tellAll({ did: "refused", error: "" });
		jobs.clear();
	};
	return socket;
}

/** Ask for something; `heard` is called with every answer. */
export function ask(what, heard) {
	const job = ++number, line = open(), send = () => line.send(JSON.stringify({ job, ...what }));
	jobs.set(job, heard);
	if (line.readyState === WebSocket.OPEN) send();
	else line.addEventListener("open", send);
}

/** Stop what we have asked for, running or waiting. */
export const stop = () => socket?.readyState === WebSocket.OPEN && socket.send('{"do":"stop"}');

/** Hand over a CSV; what the server found in it, or {error}. */
export const sendTable = (body) => fetch("/table", { method: "POST", headers: { "content-type": "text/csv" }, body })
	.then((answer) => answer.json()).catch(() => ({ error: "" }));
