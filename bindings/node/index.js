"use strict";
const { errorOf, ...errors } = require("./lib/errors.js");
const { ExecutionResult, Result } = require("./lib/result.js");
const { Process } = require("./lib/process.js");
const { version } = require("./package.json");

/* The size of a box's /tmp when nothing is said: see docs/OPTIONS.md. */
const DEFAULT_TMPFS_MB = 64;

module.exports = { ...require("./lib/sandbox.js"), Process, ExecutionResult, Result, ...errors, DEFAULT_TMPFS_MB, version };
