/**
 * Replaces the clocks, timers, random numbers and asynchronous file operations of Node for code in a simulated
 * process, libraries included; sockets, threads and child processes are refused there. Code outside of simulated
 * processes has Node's own. Import this file before any module that keeps a function of Node.
 */
import childProcess from 'node:child_process';
import crypto from 'node:crypto';
import dgram from 'node:dgram';
import dns from 'node:dns';
import fs from 'node:fs';
import http from 'node:http';
import http2 from 'node:http2';
import https from 'node:https';
import { syncBuiltinESMExports } from 'node:module';
import net from 'node:net';
import os from 'node:os';
import timers from 'node:timers';
import timersPromises from 'node:timers/promises';
import tls from 'node:tls';
import workerThreads from 'node:worker_threads';
import zlib from 'node:zlib';
import { guardDatabases } from './disk/guarded-databases.ts';
import { guardFiles, keepProperties } from './disk/guarded-files.ts';
import type { SimulatedProcess } from './simulated-process.ts';
import { SimulatedTimer } from './simulated-process.ts';
import type { VirtualTime } from './virtual-time.ts';

type Call = (...args: unknown[]) => unknown;
type Holder = Record<string, Call>;

let time: VirtualTime | null = null;

/** Simulated processes use this time from now on, until a call with null. */
export function guardWith(simulated: VirtualTime | null): void {
  time = simulated;
}

/** @returns the simulated process whose code runs; null for code of the host */
export function currentProcess(): SimulatedProcess | null {
  return time?.current ?? null;
}

/** Replaces a function of Node for calls by simulated processes. */
function replace(
  holder: object,
  name: string,
  simulated: (process: SimulatedProcess, args: unknown[]) => unknown,
): void {
  const functions = holder as Holder;
  const real = functions[name];
  if (real === undefined) return;
  const replaced = function (this: unknown, ...args: unknown[]): unknown {
    const process = currentProcess();
    return process === null ? real.apply(this, args) : simulated(process, args);
  };
  keepProperties(real, replaced);
  Object.defineProperty(functions, name, { value: replaced, writable: true, configurable: true });
}

/** @throws always: the run ends with the stack of the calling code */
function refused(process: SimulatedProcess, what: string): never {
  const error = new Error(`${process.name} reached for ${what}: the simulation has no seam there`);
  time?.fail(error);
  throw error;
}

function refuse(holder: object, name: string, what: string): void {
  replace(holder, name, (process) => refused(process, `${what} (${name})`));
}

const bind = ([run, , ...args]: unknown[]): (() => void) => {
  const call = run as Call;
  return args.length === 0 ? () => void call() : () => void call(...args);
};

function clear(holder: object, name: string): void {
  const functions = holder as Holder;
  const real = functions[name] as Call;
  functions[name] = (timer) => {
    if (timer instanceof SimulatedTimer) timer.cancel();
    else if (timer !== undefined && timer !== null) real(timer);
  };
}

for (const holder of [globalThis, timers]) {
  replace(holder, 'setTimeout', (process, args) => process.after(Number(args[1] ?? 1), bind(args)));
  replace(holder, 'setInterval', (process, args) => process.every(Number(args[1] ?? 1), bind(args)));
  replace(holder, 'setImmediate', (process, [run, ...args]) => process.soon(bind([run, 0, ...args])));
  for (const name of ['clearTimeout', 'clearInterval', 'clearImmediate']) clear(holder, name);
}
type SleepArguments = Parameters<SimulatedProcess['sleep']>[1];
replace(timersPromises, 'setTimeout', async (process, [delayMs, value, options]) => {
  await process.sleep(Number(delayMs ?? 1), (options ?? {}) as SleepArguments);
  return value;
});
replace(timersPromises, 'setImmediate', async (process, [value]) => {
  await process.nextTick();
  return value;
});

const RealDate = Date;
class GuardedDate extends RealDate {
  constructor(...args: [] | [number | string | Date]) {
    if (args.length === 0) super(GuardedDate.now());
    else super(...(args as [number]));
  }

  static override now(): number {
    return currentProcess()?.wallMs() ?? RealDate.now();
  }
}
globalThis.Date = GuardedDate as DateConstructor;
const realNow = performance.now.bind(performance);
performance.now = () => currentProcess()?.nowMs() ?? realNow();
replace(process, 'hrtime', (process) => {
  const ms = process.nowMs();
  return [Math.floor(ms / 1_000), Math.floor((ms % 1_000) * 1e6)];
});
process.hrtime.bigint = () => BigInt(Math.round((currentProcess()?.nowMs() ?? realNow()) * 1e6));
replace(os, 'uptime', (process) => process.bootMs() / 1_000);
replace(AbortSignal, 'timeout', (process, [delayMs]) => process.timeout(Number(delayMs)));

replace(Math, 'random', (process) => process.random());
replace(crypto, 'randomBytes', (process, [count, callback]) => {
  const bytes = process.randomBytes(Number(count));
  if (typeof callback !== 'function') return bytes;
  process.soon(() => callback(null, bytes));
  return undefined;
});
replace(crypto, 'randomUUID', (process) => {
  const hex = process.randomBytes(16).toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20)}`;
});
for (const [holder, name] of [
  [crypto, 'randomFillSync'],
  [crypto.webcrypto, 'getRandomValues'],
] as const) {
  replace(holder, name, (process, [bytes]) => {
    const view = bytes as NodeJS.ArrayBufferView;
    process.fill(new Uint8Array(view.buffer, view.byteOffset, view.byteLength));
    return bytes;
  });
}
replace(crypto, 'randomInt', (process, args) => {
  const [low, high] =
    args.length > 1 && typeof args[1] === 'number' ? [Number(args[0]), args[1]] : [0, Number(args[0])];
  return low + Math.floor(process.random() * (high - low));
});

/** What a simulated process cannot use, by module. */
const REFUSED: readonly [holder: object, what: string, names: readonly string[]][] = [
  [net, 'a socket', ['connect', 'createConnection']],
  [net.Socket.prototype, 'a socket', ['connect']],
  [net.Server.prototype, 'a listener', ['listen']],
  [tls, 'a socket', ['connect']],
  [http, 'a socket', ['request', 'get']],
  [https, 'a socket', ['request', 'get']],
  [http2, 'a socket', ['connect']],
  [dgram, 'a socket', ['createSocket']],
  [globalThis, 'a socket', ['fetch']],
  [dns, 'a name server', Object.keys(dns).filter((name) => /^(lookup|resolve|reverse)/.test(name))],
  [
    dns.promises,
    'a name server',
    Object.keys(dns.promises).filter((name) => /^(lookup|resolve|reverse)/.test(name)),
  ],
  [
    childProcess,
    'a child process',
    ['spawn', 'exec', 'execFile', 'fork', 'spawnSync', 'execSync', 'execFileSync'],
  ],
  [
    crypto,
    'the thread pool of crypto',
    [
      ...['pbkdf2', 'scrypt', 'hkdf', 'generateKeyPair', 'generateKey', 'generatePrime', 'checkPrime'],
      ...['argon2', 'randomFill'],
    ],
  ],
  [
    crypto.webcrypto.subtle,
    'the thread pool of crypto',
    ['digest', 'encrypt', 'decrypt', 'sign', 'verify', 'deriveBits', 'generateKey', 'importKey'],
  ],
  [
    zlib,
    'the thread pool of zlib',
    Object.keys(zlib).filter(
      (name) => /^(create|(de|in)flate|g(un)?zip|unzip|brotli|zstd)/.test(name) && !name.endsWith('Sync'),
    ),
  ],
];
for (const [holder, what, names] of REFUSED) for (const name of names) refuse(holder, name, what);

workerThreads.Worker = new Proxy(workerThreads.Worker, {
  construct(target, args) {
    const process = currentProcess();
    if (process !== null) refused(process, 'a thread (Worker)');
    return Reflect.construct(target, args) as object;
  },
});

guardFiles(fs, currentProcess, refused);
guardDatabases(currentProcess);

// Databases register what to do at the end of the process; a simulated process has no such end.
for (const name of ['on', 'once', 'addListener', 'prependListener'] as const) {
  const real = process[name].bind(process) as Call;
  (process as unknown as Holder)[name] = (event, ...rest) =>
    event === 'exit' && currentProcess() !== null ? process : real(event, ...rest);
}
process.on('unhandledRejection', (error) => {
  const current = currentProcess();
  if (current === null) throw error;
  current.crashed(error);
});

syncBuiltinESMExports();
