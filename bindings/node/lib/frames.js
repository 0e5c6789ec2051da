"use strict";
/* Frames of docs/PROTOCOL.md: a line of JSON, and `bytes` raw bytes behind it. What arrives is hostile: nothing is kept that is longer
 * than a frame may be, and the first thing that is no frame is a ProtocolError.
 *
 * Also the names: camelCase here, snake_case there. */
const { ProtocolError, OptionError, TooLarge } = require("./errors.js");

const MAX_LINE = 65536, MAX_PAYLOAD = 1 << 20, MAX_DEPTH = 16, DEEPEST = 12; // of what comes; of what is in an option
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

const camel = (name) => (name.includes("_") ? name.replace(/_([a-z0-9])/g, (_, c) => c.toUpperCase()) : name);
const snake = (name) => name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);
/* The same of every key in a value of ours; a value whose keys are the caller's (env, mounts) does not come here. */
function camelKeys(value) {
	if (Array.isArray(value)) return value.map(camelKeys);
	if (typeof value !== "object" || value === null) return value;
	return Object.fromEntries(Object.entries(value).map(([k, v]) => [camel(k), camelKeys(v)]));
}

/* In the program's own words, for what would never come to it. */
function wrong(option, allowed, given) {
	const kind = typeof given;
	const shown = kind === "string" ? `the string ${JSON.stringify(given.slice(0, 80))}` : ["number", "boolean"].includes(kind) ? given
		: Object.prototype.toString.call(given).slice(8, -1);
	return new OptionError(`${option}: ${allowed} is wanted, not ${shown}`, { option, allowed });
}
/* A string that UTF-8 carries as it is; and one that JSON and a list of words do, too. */
function unicode(value, option, allowed = "a string of Unicode") {
	if (typeof value !== "string" || /\p{Surrogate}/u.test(value)) throw wrong(option, allowed, value);
	return value;
}
function text(value, option) {
	const allowed = "a string of Unicode without NUL";
	if (unicode(value, option, allowed).includes("\0")) throw wrong(option, allowed, value);
	return value;
}
/* A value that JSON carries as it is: what JSON.stringify would make something else, or the program take for no JSON, ends no session. */
function plain(value, option, depth = 0) {
	if (value === null || typeof value === "boolean") return value;
	if (typeof value === "string") return text(value, option);
	if (typeof value === "number") {
		if (!Number.isFinite(value)) throw wrong(option, "a finite number", value);
		if (Number.isInteger(value) && !Number.isSafeInteger(value)) throw wrong(option, "an integer from -2^53 + 1 to 2^53 - 1", value);
		return value;
	}
	const list = Array.isArray(value);
	if (!list && Object.prototype.toString.call(value) !== "[object Object]")
		throw wrong(option, "null, true, false, a number, a string, an array or an object", value);
	if (depth === DEEPEST) throw wrong(option, `arrays and objects at most ${DEEPEST} deep`, value);
	if (list) return Array.from(value, (v) => plain(v, option, depth + 1));
	return Object.fromEntries(Object.entries(value).filter(([, v]) => v !== undefined).map(([k, v]) => [text(k, option), plain(v, option, depth + 1)]));
}

function encode(frame) {
	const line = Buffer.from(`${JSON.stringify(frame)}\n`);
	if (line.length > MAX_LINE) {
		const asked = frame.options ?? frame, size = (name) => JSON.stringify(asked[name])?.length ?? 0;
		const option = camel(Object.keys(asked).reduce((one, other) => (size(other) > size(one) ? other : one)));
		const allowed = `${MAX_LINE} bytes of JSON at most, all options and arguments together`;
		throw new TooLarge(`${option}: too large a part of the ${line.length} bytes of this request`, { option, allowed });
	}
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

module.exports = { Parser, frames, wrong, unicode, text, plain, camel, snake, camelKeys, MAX_PAYLOAD };
