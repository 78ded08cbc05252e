// A worker: the whole loss-against-w curve, while the page keeps following the pointer.

import { sweep } from "./diagnosis.js";

self.onmessage = ({ data }) => self.postMessage({ version: data.version, ...sweep(data.kernel, data.x, data.y) });
