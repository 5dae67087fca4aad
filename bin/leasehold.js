#!/usr/bin/env node
// Plain JavaScript that old versions of Node can run: it finds the Node that the rest needs. The rest is TypeScript,
// which Node runs from version 24 on without a build, except below node_modules: there it is JavaScript below dist/,
// with a copy of this file (packaging/build.ts), or, in an unbuilt package, loaded by typescript.js.

import buffer from 'node:buffer';
import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import module, { createRequire } from 'node:module';
import { Socket } from 'node:net';
import { constants } from 'node:os';
import { dirname, join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';

const NODE_MAJOR = 24;
const EXIT_USAGE = 2;
const MOUNT_EXIT_USAGE = 1;
/** A child's descriptor that closes when its launcher ends. */
const LAUNCHER_PIPE = 3;
/** By default, on a machine with much memory, V8 lets new objects grow to 128 MiB before it collects them. */
const SERVER_MEMORY = ['--max-semi-space-size=16'];
const self = fileURLToPath(import.meta.url);
const IS_INSTALLED = self.split(sep).includes('node_modules');
const IS_BUILT = existsSync(join(dirname(self), '..', 'dist', 'package.json'));
// Beside a copy of this file in dist/ there is JavaScript; a clone ignores its build.
const TREE = IS_INSTALLED && IS_BUILT ? '../dist' : '..';
const KIND = existsSync(join(dirname(self), TREE, 'client', 'main.ts')) ? 'ts' : 'js';
/** V8's compile cache halves the start. It is not used if this folder cannot be written. */
const COMPILED = join(dirname(self), '..', 'node_modules', '.cache', 'leasehold');

if (hasWrongBytes()) {
  const isMountHelper = process.argv[2] === 'mount-helper';
  const program = isMountHelper ? 'mount.leasehold' : 'leasehold';
  process.stderr.write(
    `${program}: Cannot use an argument that is not UTF-8: names in a cluster are UTF-8\n`,
  );
  process.exitCode = isMountHelper ? MOUNT_EXIT_USAGE : EXIT_USAGE;
} else if (Number.parseInt(process.versions.node, 10) >= NODE_MAJOR) {
  await run(process.argv.slice(2));
} else {
  respawn();
}

/** Node replaces invalid UTF-8 in arguments by U+FFFD, which would name another file. */
function hasWrongBytes() {
  if (!process.argv.some((argument) => argument.includes('\ufffd'))) return false;
  try {
    return !buffer.isUtf8(readFileSync('/proc/self/cmdline'));
  } catch {
    // Without /proc, or under a Node that is too old for this check, arguments are accepted as they are.
    return false;
  }
}

/** @param {string[]} argv */
async function run(argv) {
  const [command, ...rest] = argv;
  const isServer = isServerCommand(argv);
  if (isServer) beginWith(SERVER_MEMORY);
  // Before anything uses the pool: a few long syncs must not delay all reads and writes behind them.
  process.env.UV_THREADPOOL_SIZE ??= '8';
  if (IS_INSTALLED && KIND === 'ts') await import('./typescript.js');
  stopWithParent();
  stopWithLauncher();
  collectLessOften();
  module.enableCompileCache(process.env.NODE_COMPILE_CACHE ?? COMPILED);
  if (isServer) {
    const { runServer } = await import(`${TREE}/server/main.${KIND}`);
    // Now and not at the end: the process may be killed.
    module.flushCompileCache();
    await runServer(rest);
  } else if (command === 'mount-daemon') {
    const { runMountDaemon } = await import(`${TREE}/fuse/main.${KIND}`);
    module.flushCompileCache();
    process.exitCode = await runMountDaemon(rest);
  } else {
    const { runCli } = await import(`${TREE}/client/main.${KIND}`);
    await runCli(argv, {
      serverOptions: async () => (await import(`${TREE}/server/config/config-options.${KIND}`)).OPTIONS,
    });
  }
}

/**
 * Whether to run a server: only options follow. A subcommand (`server ls`) is about the servers of a cluster.
 * @param {readonly string[]} argv
 */
function isServerCommand([command, first = '']) {
  return command === 'server' && !/^[a-z]/.test(first);
}

/**
 * Contents are in buffers outside of V8's heap, which is small in comparison. By default, V8 collects the whole heap
 * for every 8 MiB of such buffers, a third of the processor's time while contents are written. With these settings it
 * waits until both together have grown to four times what was in use.
 */
function collectLessOften() {
  setFlagsFromString('--external-memory-accounted-in-global-limit');
  setFlagsFromString('--heap-growing-percent=300');
}

/**
 * Replaces this process by one with V8's start flags, unless the flags are given already.
 * @param {readonly string[]} flags
 */
function beginWith(flags) {
  const given = [...process.execArgv, process.env.NODE_OPTIONS ?? ''].join(' ');
  const areGiven = flags.every((flag) => given.includes(flag.replace(/=.*/, '')));
  if (areGiven || process.execve === undefined) return;
  const argv = [process.execPath, ...flags, ...process.execArgv, ...process.argv.slice(1)];
  process.execve(process.execPath, argv, process.env);
}

/**
 * `leasehold dev` keeps the other end of its servers' standard input open. The input ends when dev ends, even by
 * kill -9; then this server stops in order.
 */
function stopWithParent() {
  if (process.env.LEASEHOLD_STOP_WITH_STDIN !== '1') return;
  delete process.env.LEASEHOLD_STOP_WITH_STDIN;
  process.stdin.on('end', () => process.kill(process.pid, 'SIGTERM'));
  process.stdin.on('error', () => process.kill(process.pid, 'SIGTERM'));
  process.stdin.resume();
  process.stdin.unref?.();
}

/**
 * The launcher below holds the other end of a pipe, which closes with it in any case: then this process stops in order.
 */
function stopWithLauncher() {
  if (process.env.LEASEHOLD_LAUNCHER_PIPE !== String(LAUNCHER_PIPE)) return;
  delete process.env.LEASEHOLD_LAUNCHER_PIPE;
  const pipe = new Socket({ fd: LAUNCHER_PIPE, readable: true, writable: false });
  pipe.on('error', () => undefined);
  pipe.on('close', () => process.kill(process.pid, 'SIGTERM'));
  pipe.resume();
  pipe.unref();
}

/** Runs this file again with the Node that the package depends on. */
function respawn() {
  const node = findNode();
  if (node === null) {
    process.stderr.write(
      `leasehold: Cannot start: Node ${NODE_MAJOR} or later is needed, this is ${process.versions.node}\n` +
        '  run "npm ci" in the folder of the project: it installs that Node\n',
    );
    process.exitCode = EXIT_USAGE;
    return;
  }
  const argv = process.argv.slice(2);
  // `process.execve` would close the pipe, so the flags are given here.
  const flags = isServerCommand(argv) ? SERVER_MEMORY : [];
  const child = spawn(node, [...flags, ...process.execArgv, self, ...argv], {
    stdio: ['inherit', 'inherit', 'inherit', 'pipe'],
    env: { ...process.env, LEASEHOLD_LAUNCHER_PIPE: String(LAUNCHER_PIPE) },
  });
  /** @type {NodeJS.Signals[]} */
  const forwarded = ['SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR2', 'SIGINT'];
  for (const signal of forwarded) {
    process.on(signal, () => {
      // A terminal sends Ctrl-C to the whole group, the child included.
      if (signal === 'SIGINT' && process.stdin.isTTY) return;
      child.kill(signal);
    });
  }
  child.on('error', (error) => {
    process.stderr.write(`leasehold: Cannot start ${node}: ${error.message}\n`);
    process.exitCode = 1;
  });
  child.on('exit', (code, signal) => {
    if (signal === null) {
      process.exitCode = code ?? 1;
      return;
    }
    for (const one of forwarded) process.removeAllListeners(one);
    process.exitCode = 128 + constants.signals[signal];
    process.kill(process.pid, signal);
  });
}

/** @returns {string | null} path of the Node that npm installed as a dependency */
function findNode() {
  const name = `node-linux-${process.arch}`;
  try {
    const manifest = createRequire(import.meta.url).resolve(`${name}/package.json`);
    const node = join(dirname(manifest), 'bin', 'node');
    return existsSync(node) ? node : null;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'MODULE_NOT_FOUND') return null;
    throw error;
  }
}
