#!/usr/bin/env node
"use strict";
/* The program that came with this package, on PATH as `cloche`: what npx and MCP clients start.
 *
 * PATH is not searched, and CLOCHE_BIN is not passed on: either may lead back to this script, which would then start itself for ever. */
const { spawn } = require("node:child_process");
const { program } = require("../lib/client.js");

function fail(message) {
	process.stderr.write(`cloche: ${message}\n`);
	process.exit(125);
}
let file;
try {
	file = program([]);
} catch (e) {
	fail(e.message);
}
const { CLOCHE_BIN, ...env } = process.env;
const child = spawn(file, process.argv.slice(2), { stdio: "inherit", env });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (e) => fail(`${file} can't be started: ${e.message}`));
child.on("exit", (code, signal) => process.exit(signal ? 125 : code));
