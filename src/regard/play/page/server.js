// The WebSocket to the server: jobs by number, each with a listener; reopened after a disconnection.

let socket = null, number = 0;
const jobs = new Map(); // number → listener for its messages
const notifyAll = (message) => jobs.forEach((listener) => listener(message));

function open() {
	if (socket?.readyState <= WebSocket.OPEN) return socket;
	socket = new WebSocket(`ws://${location.host}/talk`);
	socket.onmessage = ({ data }) => {
		for (const message of JSON.parse(data)) message.did === "dropped" ? notifyAll(message) : jobs.get(message.job)?.(message);
	};
	socket.onclose = () => {
		notifyAll({ did: "refused", error: "" });
		jobs.clear();
	};
	return socket;
}

/** Send a request; `listener` is called with every message about it. */
export function ask(request, listener) {
	const job = ++number, line = open(), send = () => line.send(JSON.stringify({ job, ...request }));
	jobs.set(job, listener);
	if (line.readyState === WebSocket.OPEN) send();
	else line.addEventListener("open", send);
}

/** Stop our jobs, running or waiting. */
export const stop = () => socket?.readyState === WebSocket.OPEN && socket.send('{"do":"stop"}');

/** Upload a CSV; returns its description, or {error}. */
export const sendTable = (body) => fetch("/table", { method: "POST", headers: { "content-type": "text/csv" }, body })
	.then((answer) => answer.json()).catch(() => ({ error: "" }));
