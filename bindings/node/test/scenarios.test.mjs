/* The scenarios (tests/scenarios, README.md there), through this package. SCENARIOS: the directory; SCENARIOS_IMAGES: which images of
 * the tests are in the store, as local/NAME; SCENARIOS_RAN: a file that gets a line of JSON for each. */
import assert from "node:assert/strict";
import { appendFileSync, chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import * as cloche from "../index.mjs";

const directory = process.env.SCENARIOS ?? new URL("../../../tests/scenarios", import.meta.url).pathname;
const images = (process.env.SCENARIOS_IMAGES ?? "").split(",");
const timeout = 1000 * Number(process.env.CLOCHE_HANG ?? 60);
const MATCHERS = ["matches", "contains", "gt", "lt", "in", "not", "all", "has", "base64", "repeat", "object"];
const OWN = ["do", "on", "as", "live", "expect", "error"];
/* Arguments of a method that stand by themselves; the others are its options. */
const POSITIONAL = { run_code: ["code"], run: ["argv"], start: ["argv"], write_file: ["path", "data"], read_file: ["path"], list_files: ["path"], stat: ["path"],
	remove: ["path"], make_dir: ["path"], rename: ["path", "to"], snapshot: ["file"], restore: ["file"], setup: ["command"], signal: ["signal"], port: ["port"],
	resize: ["rows", "cols"], write_stdin: ["data"] };

const camel = (name) => name.replace(/_([a-z0-9])/g, (_, c) => c.toUpperCase());
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const rename = (given) => Object.fromEntries(Object.entries(given).map(([k, v]) => [camel(k), k === "rlimits" && isObject(v) ? rename(v) : v]));

function bytes(value) {
	if (typeof value === "string") return Buffer.from(value);
	if ("base64" in value) return Buffer.from(value.base64, "base64");
	if ("repeat" in value) return Buffer.from(value.repeat.repeat(value.times));
	return Buffer.concat(value.chunks.map(bytes));
}
/* An argument that is data: text where it is one, so that both kinds are given. */
function argument(name, value) {
	if (!["data", "stdin", "code"].includes(name) || !isObject(value)) return value;
	if (name === "stdin" && "chunks" in value) return value.chunks.map((chunk) => new Uint8Array(bytes(chunk)));
	return name === "code" ? bytes(value).toString() : new Uint8Array(bytes(value));
}
const UNSENDABLE = { $NAN: NaN, $INFINITY: Infinity, $HUGE: 2 ** 63, $BYTES: new Uint8Array(5), $LONG: "x".repeat(70000) };
function filled(value, tmp) {
	if (Object.hasOwn(UNSENDABLE, value)) return UNSENDABLE[value];
	if (typeof value === "string") return value.replaceAll("$TMP", tmp).replaceAll("$UID", String(process.geteuid()));
	if (Array.isArray(value)) return value.map((v) => filled(v, tmp));
	return isObject(value) ? Object.fromEntries(Object.entries(value).map(([k, v]) => [filled(k, tmp), filled(v, tmp)])) : value;
}

const text = (value) => (value instanceof Uint8Array ? Buffer.from(value).toString() : value ?? null);
/* What a path of a result leads to; names of rows are as they are. */
function field(value, where) {
	for (const step of where.match(/[^.[\]]+/g) ?? []) {
		if (value === null || value === undefined) return null;
		// The length of a text is that of its characters in the other languages.
		if (step === "length") value = typeof value === "string" ? [...value].length : value.length;
		else value = value[step in Object(value) ? step : camel(step)];
	}
	return value ?? null;
}
const comparable = (value) => (Array.isArray(value) ? value.map(comparable) : text(value));
function equal(want, got) {
	try { assert.deepEqual(comparable(got), isObject(want) ? rename(want) : want); return true; } catch { return false; }
}
function holds(want, got) {
	const keys = isObject(want) ? Object.keys(want) : [];
	if (!(keys.length === 1 || keys.length === 2) || !keys.some((k) => MATCHERS.includes(k))) {
		if (Array.isArray(want)) return Array.isArray(got) && want.length === got.length && want.every((w, i) => isObject(w) ? equal(w, got[i]) : equal(w, got[i]));
		return equal(want, got);
	}
	if ("matches" in want) return typeof text(got) === "string" && new RegExp(want.matches, "u").test(text(got));
	if ("contains" in want) return got !== null && (Array.isArray(got) ? got.some((item) => equal(want.contains, item)) : text(got).includes(want.contains));
	if ("gt" in want || "lt" in want) return typeof got === "number" && ("gt" in want ? got > want.gt : got < want.lt);
	if ("in" in want) return want.in.some((one) => equal(one, got));
	if ("not" in want) return !holds(want.not, got);
	if ("all" in want) return want.all.every((one) => holds(one, got));
	if ("has" in want) return got !== null && got.some((item) => Object.entries(want.has).every(([p, w]) => holds(w, field(item, p))));
	if ("object" in want) return equal(want.object, got);
	return Buffer.from(got instanceof Uint8Array ? got : got ?? "").equals(bytes(want));
}
const shown = (value) => String(JSON.stringify(value, (_, v) => (v instanceof Uint8Array ? text(v) : v))).slice(0, 2000);
function check(expect, got, where) {
	for (const [at, want] of Object.entries(expect))
		assert.ok(holds(want, field(got, at)), `${where}: ${at || "result"}: ${shown(field(got, at))} is not ${JSON.stringify(want)}; all: ${shown(got)}`);
}

function make(host, tmp) {
	for (const [name, what] of Object.entries(host)) {
		const file = path.join(tmp, name);
		mkdirSync(path.dirname(file), { recursive: true });
		if (isObject(what) && "dir" in what) mkdirSync(file, { recursive: true });
		else if (isObject(what) && "link" in what) symlinkSync(what.link, file);
		else writeFileSync(file, bytes(what));
	}
}

async function fails(want, call, where) {
	let got;
	try { got = await call(); } catch (e) {
		assert.ok(e instanceof cloche.SandboxError, `${where}: ${e.stack}`);
		assert.ok(holds(want.type, e.constructor.name), `${where}: ${e.stack}`);
		const { type, ...rest } = want, { message, allowed = null, rule = null } = e;
		return check(rest, { message, allowed, rule, option: e.option?.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`) ?? null }, where);
	}
	assert.fail(`${where}: no error, but ${shown(got)}`);
}

/* Callbacks that keep what they got, and show it beside the fields of a result. */
function gather() {
	const out = [], err = [], joined = (pieces) => new Uint8Array(Buffer.concat(pieces));
	return {
		args: { onStdout: (piece) => out.push(piece), onStderr: (piece) => err.push(piece) },
		beside: (got) => new Proxy(got, { get: (it, name) => (name === "live_stdout" ? joined(out) : name === "live_stderr" ? joined(err) : it[name]),
			has: (it, name) => name.startsWith?.("live_") || name in it }),
	};
}
async function play(scenario, tmp) {
	const { host = {}, open = {}, error, expect = {}, steps = [], live: wanted } = filled(scenario, tmp);
	const names = new Map(), live = new Map(), close = [], seen = gather();
	make(host, tmp);
	const opened = async () => {
		const sandbox = new cloche.Sandbox({ ...rename(open), ...(wanted && seen.args) });
		close.push(sandbox);
		return sandbox.open();
	};
	try {
		if (error) return await fails(error, opened, "open");
		names.set(undefined, await opened());
		check(expect, seen.beside(names.get(undefined)), "open");
		for (const [n, step] of steps.entries()) await take(step, `step ${n + 1} (${step.do})`, { names, live, close });
	} finally {
		for (const sandbox of close.reverse()) await sandbox.close();
	}
}
async function take(step, where, { names, live, close }) {
	const given = Object.fromEntries(Object.entries(step).filter(([k]) => !OWN.includes(k)).map(([k, v]) => [k, argument(k, v)]));
	if (step.do === "sleep") return sleep(1000 * given.seconds);
	if (step.do === "host") return check(step.expect, existsSync(given.path) ? new Uint8Array(readFileSync(given.path)) : null, where);
	if (step.do === "host_write") return writeFileSync(given.path, bytes(step.data));
	const seen = gather(), options = step.live ? { ...seen.args } : {};
	const positional = POSITIONAL[step.do] ?? [];
	for (const [k, v] of Object.entries(given)) if (!positional.includes(k)) options[camel(k)] = v;
	const args = [...positional.map((k) => given[k]), ...(Object.keys(options).length ? [options] : [])];
	const on = names.get(step.on);
	const call = async () => {
		if (step.do === "write_stdin") return on.stdin.write(...args);
		if (step.do === "close_stdin") return on.stdin.end();
		return on[camel(step.do)](...args);
	};
	if (step.error) return fails(step.error, call, where);
	let got = await call();
	if (step.as) {
		names.set(step.as, got);
		live.set(step.as, seen);
		if (step.do === "fork") close.push(got);
	}
	if (["run", "run_code", "setup", "wait"].includes(step.do)) got = (step.do === "wait" ? live.get(step.on) : seen).beside(got);
	check(step.expect ?? {}, got, where);
}

/* The address sanitizer reserves terabytes of addresses before the program's first line runs. */
const sanitized = () => Boolean(process.env.CLOCHE_BIN) && readFileSync(process.env.CLOCHE_BIN).includes("__asan_init");
const lacks = (need) => (need === "root" ? process.geteuid() !== 0 : need === "user" ? process.geteuid() === 0 : need.startsWith("device:") ? !existsSync(need.slice(7))
	: need === "address_space" ? sanitized() : need === "gone" || !images.includes(need.slice(6)));
for (const name of readdirSync(directory).filter((n) => n.endsWith(".json")).sort())
	for (const scenario of JSON.parse(readFileSync(path.join(directory, name), "utf8"))) {
		const file = path.basename(name, ".json"), lacking = (scenario.needs ?? []).filter(lacks);
		const say = (row) => process.env.SCENARIOS_RAN && appendFileSync(process.env.SCENARIOS_RAN, `${JSON.stringify({ file, name: scenario.name, ...row })}\n`);
		if (lacking.length) say({ skip: `needs ${lacking.join(", ")}` });
		test(`${file}: ${scenario.name}`, { timeout, skip: lacking.length ? `needs ${lacking.join(", ")}` : false }, async () => {
			const tmp = mkdtempSync("/tmp/ct-scene-");
			chmodSync(tmp, 0o755);
			let error = "did not end";
			try {
				await play(scenario, tmp);
				error = null;
			} catch (e) {
				error = e.message;
				throw e;
			} finally {
				rmSync(tmp, { recursive: true, force: true });
				say({ error });
			}
		});
	}
