"use strict";
/* Frames of docs/PROTOCOL.md: a line of JSON, and `bytes` raw bytes behind it. What arrives is hostile: nothing is kept that is longer
 * than a frame may be, and the first thing that is no frame is a ProtocolError.
 *
 * Also the names: camelCase here, snake_case there. */
const { ProtocolError, OptionError, TooLarge } = require("./errors.js");

const MAX_LINE = 65536, MAX_PAYLOAD = 1 << 20, MAX_DEPTH = 16;
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

const camel = (name) => (name.includes("_") ? name.replace(/_([a-z0-9])/g, (_, c) => c.toUpperCase()) : name);
const snake = (name) => name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);
/* The same of every key in a value of ours; a value whose keys are the caller's (env, mounts) does not come here. */
function camelKeys(value) {
	if (Array.isArray(value)) return value.map(camelKeys);
	if (typeof value !== "object" || value === null) return value;
	return Object.fromEntries(Object.entries(value).map(([k, v]) => [camel(k), camelKeys(v)]));
}

/* A string that UTF-8 carries as it is; and one that JSON and a list of words do, too. */
function unicode(value, option) {
	if (typeof value !== "string") throw new OptionError(`${option}: text, not ${value === null ? "null" : typeof value}`, { option });
	if (/\p{Surrogate}/u.test(value)) throw new OptionError(`${option}: half of a surrogate pair is no text`, { option });
	return value;
}
function text(value, option) {
	if (unicode(value, option).includes("\0")) throw new OptionError(`${option}: a NUL can't be part of it`, { option });
	return value;
}
/* A value that JSON carries as it is; JSON.stringify would make null of NaN and {} of a Map. */
function plain(value, option, depth = 0) {
	if (typeof value === "string") return text(value, option);
	if (value === null || typeof value === "boolean" || (typeof value === "number" && Number.isFinite(value))) return value;
	if (depth < MAX_DEPTH - 2) { // two are the frame's own
		if (Array.isArray(value)) return Array.from(value, (v) => plain(v, option, depth + 1));
		if (Object.prototype.toString.call(value) === "[object Object]")
			return Object.fromEntries(Object.entries(value).filter(([, v]) => v !== undefined)
				.map(([k, v]) => [text(k, option), plain(v, option, depth + 1)]));
	}
	const what = typeof value === "object" ? Object.prototype.toString.call(value).slice(8, -1) : `${typeof value} ${String(value)}`;
	throw new OptionError(`${option}: ${what} is no value for it`, { option });
}

function encode(frame) {
	const line = Buffer.from(`${JSON.stringify(frame)}\n`);
	if (line.length > MAX_LINE) throw new TooLarge(`${frame.op}: its options take ${line.length} bytes; ${MAX_LINE} is the most`);
	return line;
}

/* What a request is sent as: the first frame, and a payload in parts that a frame may have. */
function* frames(head, payload) {
	if (!payload) yield encode(head);
	for (let at = 0; payload && (at === 0 || at < payload.length); at += MAX_PAYLOAD) {
		const part = payload.subarray(at, at + MAX_PAYLOAD), more = at + part.length < payload.length;
		yield Buffer.concat([encode({ ...head, bytes: part.length, ...((at || more) && { more }) }), part]);
		head = { id: head.id, op: "more" };
	}
}

class Parser {
	#onFrame;
	#chunks = [];
	#have = 0; // bytes in them
	#need = 1; // how many have to be there before anything can be made of them
	#frame = null; // waits for its payload

	constructor(onFrame) { this.#onFrame = onFrame; }

	push(chunk) {
		this.#chunks.push(chunk);
		this.#have += chunk.length;
		while (this.#have >= this.#need) {
			const all = this.#chunks.length === 1 ? this.#chunks[0] : Buffer.concat(this.#chunks, this.#have);
			const used = this.#frame ? this.#payload(all) : this.#line(all);
			this.#chunks = [all.subarray(used)];
			this.#have -= used;
		}
	}
	/* Each returns how much it has used. */
	#line(all) {
		const end = all.indexOf(10);
		if (end >= MAX_LINE || (end < 0 && all.length >= MAX_LINE)) throw new ProtocolError(`a line of more than ${MAX_LINE} bytes`);
		this.#need = all.length + 1;
		if (end < 0) return 0;
		this.#frame = parse(all.subarray(0, end));
		this.#need = this.#frame.bytes;
		return end + 1;
	}
	#payload(all) {
		const [frame, payload] = [this.#frame, new Uint8Array(all.subarray(0, this.#need))], used = this.#need;
		[this.#frame, this.#need] = [null, 1];
		this.#onFrame(frame, payload);
		return used;
	}
}

function parse(line) {
	let frame;
	try {
		frame = JSON.parse(utf8.decode(line));
	} catch {
		throw new ProtocolError("a line that is no JSON");
	}
	if (typeof frame !== "object" || frame === null || Array.isArray(frame)) throw new ProtocolError("a line that is no JSON object");
	const { bytes = 0 } = frame;
	if (!Number.isInteger(bytes) || bytes < 0 || bytes > MAX_PAYLOAD) throw new ProtocolError(`a frame with bytes: ${String(bytes).slice(0, 40)}`);
	if (!shallow(frame, MAX_DEPTH)) throw new ProtocolError("a line that is nested too deeply");
	frame.bytes = bytes;
	return frame;
}
function shallow(value, left) {
	return typeof value !== "object" || value === null || (left > 0 && Object.values(value).every((v) => shallow(v, left - 1)));
}

module.exports = { Parser, frames, unicode, text, plain, camel, snake, camelKeys, MAX_PAYLOAD };
