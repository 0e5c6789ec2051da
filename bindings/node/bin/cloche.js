#!/usr/bin/env node
"use strict";
/* The program that came with this package, on PATH as `cloche`: what npx and MCP clients start. */
const { spawn } = require("node:child_process");
const { program } = require("../lib/client.js");

let file;
try {
	file = program();
} catch (e) {
	process.stderr.write(`cloche: ${e.message}\n`);
	process.exit(125);
}
const child = spawn(file, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (e) => {
	process.stderr.write(`cloche: ${file} can't be started: ${e.message}\n`);
	process.exit(125);
});
child.on("exit", (code, signal) => process.exit(signal ? 125 : code));
