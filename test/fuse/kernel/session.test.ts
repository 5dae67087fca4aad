import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { World } from '../../../base/world.ts';
import type { KernelCache } from '../../../fuse/answered.ts';
import type { Attributes } from '../../../fuse/backend.ts';
import { IOCTL } from '../../../fuse/kernel/ioctls.ts';
import { Notifier } from '../../../fuse/kernel/notifier.ts';
import { IN_HEADER_BYTES, INIT_FLAG, OPCODE, OUT_HEADER_BYTES } from '../../../fuse/kernel/protocol.ts';
import { Session } from '../../../fuse/kernel/session.ts';
import { pendingIn, pendingSignals } from '../../../fuse/kernel/signals.ts';
import { UPTAKE_SLACK_MS } from '../../../fuse/kernel-view/in-flight.ts';
import { InodesWithoutAcls } from '../../../fuse/kernel-view/inodes-without-acls.ts';
import type { Place } from '../../../fuse/place.ts';
import type { FileSystemCalls, Log } from '../../../fuse/transport.ts';
import { systemWorld } from '../../../world/system-world.ts';

const ROOT = 500;
const LIMIT_MS = 1000;
const EINTR = -4;
const ETIMEDOUT = -110;
const ENOSYS = -38;
const EIO = -5;
const ENOTTY = -25;
const EOPNOTSUPP = -95;

const FILE: Attributes = {
  inode: 7,
  kind: 'file',
  mode: 0o644,
  uid: 1,
  gid: 2,
  links: 3,
  sizeBytes: 2 ** 33 + 5,
  accessedNs: '1000000002',
  modifiedNs: '-5500000000',
  changedNs: '5',
  target: '',
  device: 0,
  replicas: [],
  contents: { epoch: 1, seq: 1 },
  live: false,
};

interface Answer {
  readonly unique: number;
  readonly error: number;
  readonly body: Buffer;
}

/** The world of sessions that are created from now on. */
let world: World = systemWorld;

/** A session without a kernel: the test sends requests and reads replies. */
class Exchange {
  readonly answers: Answer[] = [];
  readonly dropped: number[] = [];
  readonly expired: string[] = [];
  readonly absentLists = new InodesWithoutAcls(InodesWithoutAcls.memory(), systemWorld.nowMs);
  readonly session: Session;
  #unique = 0;

  constructor(calls: Partial<FileSystemCalls>, times: Partial<KernelCache>, log: Log = () => undefined) {
    const { attributesMs = 0 } = times;
    // An answer is cached a little shorter, as the kernel may process it later.
    const cache = {
      attributesMs,
      validMs: () => attributesMs + UPTAKE_SLACK_MS,
      nameValidMs: null,
      isGranted: null,
      ...times,
    };
    const options = {
      world,
      ...{ source: 'test', kernelOptions: [], present: (same: Attributes) => same, limitMs: LIMIT_MS },
      ...{ xattrs: true, acls: true, creationTimes: true, deviceNumber: null, log, backgroundMax: 64, cache },
      notices: {
        drop: async (inode: number) => void this.dropped.push(inode),
        expire: async ({ name }: Place) => void this.expired.push(name),
      },
      absentLists: this.absentLists,
      signals: pendingSignals,
    };
    const usual = { root: ROOT, listed: () => undefined, keptPages: () => undefined, taken: () => undefined };
    this.session = new Session({ ...usual, ...calls } as FileSystemCalls, options, (pieces) => {
      const reply = Buffer.concat(pieces);
      assert.equal(reply.readUInt32LE(0), reply.length);
      const unique = Number(reply.readBigUInt64LE(8));
      this.answers.push({ unique, error: reply.readInt32LE(4), body: reply.subarray(OUT_HEADER_BYTES) });
      return true;
    });
  }

  /** @returns the unique number of the request */
  ask(opcode: number, node: number, body: Buffer, pid = 0): number {
    this.#unique += 2;
    const header = Buffer.alloc(IN_HEADER_BYTES);
    header.writeUInt32LE(header.length + body.length, 0);
    header.writeUInt32LE(opcode, 4);
    header.writeBigUInt64LE(BigInt(this.#unique), 8);
    header.writeBigUInt64LE(BigInt(node), 16);
    header.writeUInt32LE(pid, 32);
    this.session.receive(Buffer.concat([header, body]));
    return this.#unique;
  }

  /** The kernel drops `lookups` references to a node. */
  forget(node: number, lookups: number): void {
    const body = Buffer.alloc(8);
    body.writeBigUInt64LE(BigInt(lookups));
    this.ask(OPCODE.forget, node, body);
  }

  init(minor: number): Buffer {
    const body = Buffer.alloc(64);
    body.writeUInt32LE(7, 0);
    body.writeUInt32LE(minor, 4);
    body.writeUInt32LE(131_072, 8);
    body.writeUInt32LE(0xffff_ffff, 12);
    this.ask(OPCODE.init, 0, body);
    return this.last().body;
  }

  last(): Answer {
    const answer = this.answers.at(-1);
    assert.ok(answer !== undefined);
    return answer;
  }
}

const STRICT = { attributesMs: 1500 };

/** Waits until all resolved promises have been handled. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function clock(t: TestContext): void {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let nowMs = 0;
  world = { ...systemWorld, nowMs: () => nowMs };
  t.after(() => {
    world = systemWorld;
  });
  const tick = t.mock.timers.tick.bind(t.mock.timers);
  t.mock.timers.tick = (ms = 0) => {
    nowMs += ms;
    tick(ms);
  };
}

test('the first reply has the version, sizes and flags for locks', async () => {
  const exchange = new Exchange({}, STRICT);
  const answer = exchange.init(45);
  assert.deepEqual([answer.length, answer.readUInt32LE(0)], [64, 7]);
  const flags = answer.readUInt32LE(12);
  for (const lock of [INIT_FLAG.posixLocks, INIT_FLAG.flockLocks]) assert.notEqual(flags & lock, 0);
  assert.notEqual(flags & INIT_FLAG.killPrivilegesV2, 0);
  assert.equal(answer.readUInt32LE(20), 1024 * 1024);
  assert.equal(answer.readUInt16LE(28), 256);
  assert.equal(await exchange.session.started, 45);
  const old = new Exchange({}, STRICT);
  old.init(31);
  await assert.rejects(old.session.started, /7\.31/);
  assert.equal(old.last().error, -71);
});

test('ioctl reads and sets flags in both forms, and refuses flags that are not stored', async () => {
  const set: unknown[] = [];
  const exchange = new Exchange(
    {
      attributes: async () => ({ ...FILE, flags: ['append-only'] }),
      setFlags: async (...call) => void set.push(call.slice(0, 2)),
    },
    STRICT,
  );
  const ioctl = async (command: number, ...argument: readonly number[]): Promise<string> => {
    const body = Buffer.alloc(32 + argument.length * 4);
    body.writeUInt32LE(command, 12);
    body.writeUInt32LE(argument.length * 4, 24);
    for (const [index, word] of argument.entries()) body.writeUInt32LE(word, 32 + index * 4);
    exchange.ask(OPCODE.ioctl, 7, body);
    await settled();
    const answer = exchange.last();
    return answer.error === 0 ? answer.body.toString('hex') : String(answer.error);
  };
  const done = '00'.repeat(16);
  assert.equal(await ioctl(IOCTL.getFlags), `${done}20000000`);
  assert.equal(await ioctl(IOCTL.getXflags), `${done}10000000${'00'.repeat(24)}`);
  assert.equal(await ioctl(IOCTL.setFlags, 0x30), done);
  assert.equal(await ioctl(IOCTL.setFlags, 0), done);
  assert.equal(await ioctl(IOCTL.setXflags, 0x8, 0, 0, 0, 0, 0, 0), done);
  assert.deepEqual(set, [
    [7, ['immutable', 'append-only']],
    [7, []],
    [7, ['immutable']],
  ]);
  assert.equal(await ioctl(IOCTL.setFlags, 0x80), String(EOPNOTSUPP));
  assert.equal(await ioctl(IOCTL.setXflags, 0, 0, 0, 5, 0, 0, 0), String(EOPNOTSUPP));
  assert.equal(await ioctl(0x5401), String(ENOTTY));
  assert.equal(set.length, 3);
});

test('statx returns the creation time if it is known, byte by byte', async () => {
  const created = { ...FILE, createdNs: '7000000009', device: 0x0123_45_67 };
  const exchange = new Exchange(
    { attributesWithCreation: async (inode) => (inode === 7 ? created : FILE) },
    STRICT,
  );
  exchange.ask(OPCODE.statx, 7, Buffer.alloc(24));
  await settled();
  const { body } = exchange.last();
  assert.equal(
    body.toString('hex'),
    [
      '01000000000000000065cd1d00000000', // validity, flags
      '00000000000000000000000000000000',
      'ff0f0000000010000000000000000000', // mask of what follows, size of blocks, attributes
      '030000000100000002000000a4810000', // links, owner, group, mode
      '070000000000000005000000020000000100000100000000', // inode, size, blocks
      '0000000000000000', // supported attributes
      '01000000000000000200000000000000', // atime, btime, ctime, mtime
      '07000000000000000900000000000000',
      '00000000000000000500000000000000',
      'faffffffffffffff0065cd1d00000000',
      '4503000067120000'.concat('00'.repeat(8)), // device
      '00'.repeat(112),
    ].join(''),
  );
  exchange.ask(OPCODE.statx, 8, Buffer.alloc(24));
  await settled();
  const unknown = exchange.last().body;
  assert.deepEqual([unknown.readUInt32LE(32), unknown.readBigUInt64LE(112)], [0x7ff, 0n]);
});

test('an entry is encoded byte by byte; the root has node 1', async () => {
  const exchange = new Exchange(
    { lookup: async (parent, name) => ({ ...FILE, inode: parent === ROOT && name === 'f' ? 7 : ROOT }) },
    STRICT,
  );
  exchange.ask(OPCODE.lookup, 1, Buffer.from('f\0'));
  await settled();
  const { body } = exchange.last();
  assert.equal(
    body.toString('hex'),
    [
      '07000000000000000000000000000000', // node and generation
      '00000000000000000100000000000000', // seconds of validity of name and attributes
      '000000000065cd1d', // and nanoseconds
      '07000000000000000500000002000000', // inode, size
      '0100000100000000', // blocks
      '0100000000000000fafffffffffffff'.concat('f', '0000000000000000'), // times
      '020000000065cd1d05000000',
      'a4810000030000000100000002000000', // mode, links, owner, group
      '000000000000100000000000', // device, size of blocks, flags
    ].join(''),
  );
  exchange.ask(OPCODE.lookup, 9, Buffer.from('up\0'));
  await settled();
  assert.equal(Number(exchange.last().body.readBigUInt64LE(0)), 1);
});

test('a call that takes too long is answered with ETIMEDOUT, and the handle that it opens later is closed', async (t) => {
  clock(t);
  const opened = Promise.withResolvers<{
    handle: number;
    directIo: boolean;
    linked: boolean;
    version: string;
  }>();
  const released: number[] = [];
  const exchange = new Exchange(
    {
      open: () => opened.promise,
      release: async (handle) => {
        released.push(handle);
      },
      lookup: () => new Promise<never>(() => undefined),
    },
    STRICT,
  );
  const unique = exchange.ask(OPCODE.open, 7, Buffer.alloc(8));
  exchange.ask(OPCODE.lookup, 1, Buffer.from('f\0'));
  t.mock.timers.tick(LIMIT_MS / 2);
  assert.equal(exchange.answers.length, 0);
  for (let step = 0; step < 6; step++) t.mock.timers.tick(LIMIT_MS / 10);
  assert.deepEqual(
    exchange.answers.map(({ error }) => error),
    [ETIMEDOUT, ETIMEDOUT],
  );
  assert.equal(exchange.answers[0]?.unique, unique);
  exchange.ask(OPCODE.lookup, 1, Buffer.from('f\0'));
  assert.equal(exchange.last().error, ETIMEDOUT, 'The same call again is answered at once');
  opened.resolve({ handle: 11, directIo: false, linked: false, version: '1' });
  await settled();
  assert.deepEqual(released, [11]);
  assert.equal(exchange.answers.length, 3, 'No request is answered twice');
});

/** A caller without a reply cannot be killed, and programs that query the mount hang. */
test('a caller gets EIO, whatever fails while its request is handled', async () => {
  const thrown: unknown[] = [];
  const log: Log = () => {
    const error = new Error('The log is broken, too');
    thrown.push(error);
    throw error;
  };
  const failsLater: Partial<FileSystemCalls> = {
    attributes: async () => {
      throw new TypeError('Not foreseen');
    },
  };
  const failsAtOnce: Partial<FileSystemCalls> = {
    attributes() {
      throw new TypeError('Not foreseen');
    },
  };
  const hasNoCall: Partial<FileSystemCalls> = {};
  const isNoPromise = { attributes: () => undefined } as unknown as Partial<FileSystemCalls>;
  const hasNoBytes: Partial<FileSystemCalls> = {
    attributes: async () => ({ ...FILE, modifiedNs: 'yesterday' }),
  };
  const unhandled: unknown[] = [];
  const others = process.listeners('unhandledRejection');
  process.removeAllListeners('unhandledRejection');
  process.on('unhandledRejection', (error) => unhandled.push(error));
  for (const calls of [failsLater, failsAtOnce, hasNoCall, isNoPromise, hasNoBytes]) {
    const exchange = new Exchange(calls, STRICT, log);
    const unique = exchange.ask(OPCODE.getattr, 7, Buffer.alloc(16));
    await settled();
    assert.deepEqual(
      exchange.answers.map(({ unique: of, error }) => [of, error]),
      [[unique, EIO]],
    );
    // No call is pending now.
    exchange.session.underWay.stop();
  }
  const cutShort = new Exchange({}, STRICT, log);
  cutShort.ask(OPCODE.read, 7, Buffer.alloc(3));
  assert.equal(cutShort.last().error, EIO);
  process.removeAllListeners('unhandledRejection');
  for (const listener of others) process.on('unhandledRejection', listener);
  assert.equal(thrown.length, 5, 'Each failure was logged');
  assert.deepEqual(unhandled, thrown, 'Errors of the log are unhandled rejections');
});

test('the kernel keeps pages from one open to the next while the version is the same', async () => {
  let version = 'one';
  const exchange = new Exchange(
    { open: async () => ({ handle: 11, directIo: version === 'direct', linked: true, version }) },
    STRICT,
  );
  const flags = async (): Promise<number> => {
    exchange.ask(OPCODE.open, 7, Buffer.alloc(8));
    await settled();
    return exchange.last().body.readUInt32LE(8) & 3;
  };
  assert.deepEqual([await flags(), await flags()], [0, 2]);
  version = 'two';
  assert.deepEqual([await flags(), await flags()], [0, 2]);
  exchange.forget(7, 1);
  assert.equal(await flags(), 0, 'Pages of a forgotten inode are gone');
  version = 'direct';
  assert.equal(await flags(), 1);
});

test('an interrupted wait for a lock aborts its signal; other calls are answered with EINTR if that does no harm', async () => {
  const signals: AbortSignal[] = [];
  const exchange = new Exchange(
    {
      lockHolder: async () => null,
      lock: (_handle, _request, _waits, signal) => {
        signals.push(signal);
        return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
      },
      attributes: () => new Promise<never>(() => undefined),
      write: () => new Promise<never>(() => undefined),
    },
    STRICT,
  );
  const interrupt = (unique: number): void => {
    const body = Buffer.alloc(8);
    body.writeBigUInt64LE(BigInt(unique));
    exchange.ask(OPCODE.interrupt, 0, body);
  };
  interrupt(exchange.ask(OPCODE.setlkw, 7, Buffer.alloc(48)));
  await settled();
  assert.equal(signals[0]?.aborted, true);
  assert.equal(exchange.answers.length, 1, 'The answer is that of the file system');
  // The signals of the caller are unknown: the call is interrupted if that does no harm.
  const asked = exchange.ask(OPCODE.getattr, 7, Buffer.alloc(16));
  interrupt(asked);
  assert.deepEqual([exchange.last().unique, exchange.last().error], [asked, EINTR]);
  interrupt(exchange.ask(OPCODE.write, 7, Buffer.alloc(40)));
  assert.equal(exchange.answers.length, 2, 'A write continues');
  interrupt(4711);
  exchange.session.underWay.stop();
});

test('pendingIn tells a fatal signal from one that is caught and one that is blocked', () => {
  const status = (pending: number, caught = 0, blocked = 0): string =>
    ['Name:\tx', `SigPnd:\t${hex(pending)}`, `ShdPnd:\t${hex(0)}`, `SigBlk:\t${hex(blocked)}`]
      .concat(`SigIgn:\t${hex(0)}`, `SigCgt:\t${hex(caught)}`)
      .join('\n');
  const [interrupt, kill, alarm] = [1 << 1, 1 << 8, 1 << 13];
  assert.equal(pendingIn(status(kill)), 'killed');
  assert.equal(pendingIn(status(interrupt)), 'killed');
  assert.equal(pendingIn(status(interrupt, interrupt)), 'stopping');
  assert.equal(pendingIn(status(interrupt, interrupt, interrupt)), 'other');
  assert.equal(pendingIn(status(alarm, alarm)), 'other');
});

function hex(mask: number): string {
  return mask.toString(16).padStart(16, '0');
}

test('attributes are cached only if they are the latest, and names are not cached', async () => {
  let believed: Attributes = FILE;
  const cache = {
    attributesMs: 0,
    validMs: (attributes: Attributes) => (attributes === believed ? 5000 : 0),
  };
  const calls = { lookup: async () => FILE, attributes: async () => FILE, touchStatus: async () => FILE };
  const exchange = new Exchange(calls, cache);
  const told = async (opcode: number, body: Buffer, ...places: [number, number][]): Promise<number[]> => {
    exchange.ask(opcode, 7, body);
    await settled();
    const reply = exchange.last().body;
    return places.map(([at, rest]) => Number(reply.readBigUInt64LE(at)) + reply.readUInt32LE(rest) / 1e9);
  };
  const lookup = () => told(OPCODE.lookup, Buffer.from('f\0'), [16, 32], [24, 36]);
  const attributes = () => told(OPCODE.getattr, Buffer.alloc(16), [0, 8]);
  assert.equal(exchange.session.view.isInFlight(7), false);
  const [entry = -1, kept = 0] = await lookup();
  assert.equal(entry, 0, 'An expired name would unmount file systems below it');
  assert.ok(kept > 4.9 && kept < 5, 'A little less, as the kernel may process the answer later');
  await lookup();
  exchange.forget(7, 1);
  assert.equal(
    exchange.session.view.isInFlight(7),
    true,
    'The caller of the second look-up may not have run yet',
  );
  exchange.forget(7, 1);
  assert.equal(exchange.session.view.isInFlight(7), false);
  assert.ok(((await attributes())[0] ?? 0) > 4.9);
  // The kernel does not compare the outcome of a change with invalidations meanwhile.
  assert.deepEqual(await told(OPCODE.setattr, Buffer.alloc(88), [0, 8]), [0]);
  believed = { ...FILE };
  assert.deepEqual([await lookup(), await attributes()], [[0, 0], [0]], 'Other attributes arrived meanwhile');
});

test('a set-attributes request without attributes, as of chown(-1, -1), touches the status', async () => {
  const called: unknown[] = [];
  const exchange = new Exchange(
    {
      touchStatus: async (inode, { uid }) => {
        called.push(['touch', inode, uid]);
        return FILE;
      },
      setAttributes: async (inode, changes) => {
        called.push(['set', inode, changes]);
        return FILE;
      },
    },
    STRICT,
  );
  const body = Buffer.alloc(88);
  exchange.ask(OPCODE.setattr, 7, body);
  // FATTR_GID.
  body.writeUInt32LE(4, 0);
  body.writeUInt32LE(34, 80);
  exchange.ask(OPCODE.setattr, 7, body);
  await settled();
  assert.deepEqual(called, [
    ['touch', 7, 0],
    ['set', 7, { gid: 34 }],
  ]);
});

test('a page of a directory has entries as a look-up returns them, where they are known', async () => {
  const entries = [
    { name: '.', kind: 'directory', inode: ROOT, position: 0 },
    { name: 'known', kind: 'file', inode: 7, position: 2 },
    { name: 'given-away', kind: 'file', inode: 8, position: 3 },
    { name: 'unknown', kind: 'file', inode: 9, position: 4 },
    { name: 'no-room', kind: 'file', inode: 10, position: 5 },
  ] as const;
  const known: Record<string, Attributes> = { known: FILE, 'given-away': { ...FILE, inode: 80 } };
  const exchange = new Exchange(
    { readDirectory: async () => ({ entries }), listed: (_parent, name) => known[name] },
    { attributesMs: 0, validMs: () => 1020, nameValidMs: () => 520 },
  );
  const flags = exchange.init(45).readUInt32LE(12);
  const plus = INIT_FLAG.readDirectoryPlus | INIT_FLAG.readDirectoryPlusAuto;
  assert.equal(flags & plus, plus);
  const body = Buffer.alloc(40);
  body.writeUInt32LE(4 * 128 + 3 * 32 + 40, 16);
  exchange.ask(OPCODE.readdirplus, 1, body);
  await settled();
  const page = exchange.last().body;
  const told: unknown[] = [];
  for (let at = 0; at < page.length; ) {
    const length = page.readUInt32LE(at + 128 + 16);
    told.push([
      page.toString('utf8', at + 152, at + 152 + length),
      Number(page.readBigUInt64LE(at + 128)),
      Number(page.readBigUInt64LE(at + 136)),
      Number(page.readBigUInt64LE(at)),
      page.readUInt32LE(at + 32) / 1e6,
      Number(page.readBigUInt64LE(at + 24)),
    ]);
    at += 128 + Math.ceil((24 + length) / 8) * 8;
  }
  assert.deepEqual(told, [
    ['.', ROOT, 1, 0, 0, 0],
    ['known', 7, 3, 7, 500, 1],
    ['given-away', 8, 4, 0, 0, 0],
    ['unknown', 9, 5, 0, 0, 0],
  ]);
  const nameless = new Exchange({ listed: () => undefined }, { attributesMs: 0, validMs: () => 5000 });
  assert.equal(
    nameless.init(45).readUInt32LE(12) & plus,
    0,
    'Attributes without names would be looked up again',
  );
});

test('the kernel references an inode for each look-up, creation and listed name', async () => {
  const opened = { handle: 11, directIo: false, linked: false, version: null };
  const [found, created] = [async () => FILE, async () => ({ ...opened, attributes: FILE })];
  const entries = [{ name: 'f', kind: 'file', inode: 7, position: 0 }] as const;
  const exchange = new Exchange(
    {
      ...{ lookup: found, symlink: found, makeNode: found, makeDirectory: found, link: found },
      ...{ create: created, createUnnamed: created, open: async () => opened },
      ...{ attributes: found, attributesWithCreation: found, touchStatus: found },
      ...{ readDirectory: async () => ({ entries }), listed: () => FILE },
    },
    STRICT,
  );
  const page = Buffer.alloc(40);
  page.writeUInt32LE(1_000, 16);
  const name = Buffer.from('f\0');
  const named = (bytes: number): Buffer => Buffer.concat([Buffer.alloc(bytes), name]);
  const ask = async (opcode: number, body: Buffer): Promise<void> => {
    exchange.ask(opcode, 7, body);
    await settled();
    assert.equal(exchange.last().error, 0);
  };
  for (const [opcode, body, counts] of [
    [OPCODE.lookup, name, true],
    [OPCODE.symlink, Buffer.from('f\0to\0'), true],
    [OPCODE.mknod, named(16), true],
    [OPCODE.mkdir, named(8), true],
    [OPCODE.link, named(8), true],
    [OPCODE.create, named(16), true],
    [OPCODE.tmpfile, named(16), true],
    [OPCODE.readdirplus, page, true],
    [OPCODE.readdir, page, false],
    [OPCODE.open, Buffer.alloc(8), false],
    [OPCODE.getattr, Buffer.alloc(16), false],
    [OPCODE.statx, Buffer.alloc(24), false],
    [OPCODE.setattr, Buffer.alloc(88), false],
  ] as const) {
    await ask(OPCODE.lookup, name);
    await ask(opcode, body);
    exchange.forget(7, 1);
    assert.equal(exchange.session.view.isInFlight(7), counts, `request ${opcode}`);
    exchange.forget(7, 1);
    assert.equal(exchange.session.view.isInFlight(7), false, `request ${opcode}, once more`);
  }
});

test('the absence of ACLs is noted for cached inodes, until one is set', async () => {
  const set = Promise.withResolvers<void>();
  const exchange = new Exchange(
    {
      lookup: async (_parent, name) => ({ ...FILE, xattrs: name === 'f' ? 0 : 1 }),
      setXattr: () => set.promise,
    },
    STRICT,
  );
  exchange.ask(OPCODE.lookup, 1, Buffer.from('g\0'));
  await settled();
  assert.equal(exchange.absentLists.has(7), false);
  const lookUp = async (): Promise<void> => {
    exchange.ask(OPCODE.lookup, 1, Buffer.from('f\0'));
    await settled();
    assert.equal(exchange.absentLists.has(7), true);
  };
  await lookUp();
  const body = Buffer.alloc(16 + 24 + 1);
  body.writeUInt32LE(1, 0);
  body.write('system.posix_acl_access', 16);
  const unique = exchange.ask(OPCODE.setxattr, 7, body);
  // Also an answer during the request.
  await lookUp();
  set.resolve();
  await settled();
  assert.deepEqual([exchange.last().unique, exchange.last().error], [unique, 0]);
  assert.equal(exchange.absentLists.has(7), false);
});

test('an open of other contents than the kernel was answered drops its attributes first', async () => {
  const opened = { handle: 11, directIo: false, linked: false, version: '7:1:2' };
  const calls = { lookup: async () => FILE, open: async () => opened };
  const exchange = new Exchange(calls, {
    attributesMs: 0,
    validMs: () => 1000,
    nameValidMs: () => 900,
  });
  const open = async (): Promise<number[]> => {
    exchange.ask(OPCODE.open, 7, Buffer.alloc(8));
    await settled();
    return exchange.dropped;
  };
  assert.deepEqual(await open(), [], 'The kernel was answered nothing');
  exchange.ask(OPCODE.lookup, 1, Buffer.from('f\0'));
  await settled();
  assert.deepEqual(await open(), [7]);
  assert.deepEqual(await open(), [7], 'The kernel has nothing any more');
  opened.version = '7:1:1';
  exchange.ask(OPCODE.lookup, 1, Buffer.from('f\0'));
  await settled();
  assert.deepEqual(await open(), [7], 'The kernel has the same contents');
});

test('answers that a stopped process sends too late are dropped from the kernel', async (t) => {
  clock(t);
  let stoppedMs = 0;
  const validMs = () => {
    t.mock.timers.tick(stoppedMs);
    return 5000;
  };
  const calls = { lookup: async () => FILE, attributes: async () => FILE };
  const exchange = new Exchange(calls, { attributesMs: 0, validMs });
  const askBoth = async (): Promise<void> => {
    exchange.ask(OPCODE.lookup, 7, Buffer.from('f\0'));
    await settled();
    exchange.ask(OPCODE.getattr, 7, Buffer.alloc(16));
    await settled();
  };
  await askBoth();
  assert.deepEqual(exchange.dropped, []);
  stoppedMs = 10_000;
  await askBoth();
  assert.deepEqual(exchange.dropped, [7, 7]);
});

test('invalidateInode returns whether the kernel knew the inode', async () => {
  const codes = [null, 'ENOENT', 'ENODEV', 'EIO'];
  const notifier = new Notifier((_notice, done) => {
    const code = codes.shift() ?? null;
    done(code === null ? null : Object.assign(new Error(code), { code }));
  });
  assert.equal(await notifier.invalidateInode(7), true);
  assert.equal(await notifier.invalidateInode(7), false);
  assert.equal(await notifier.invalidateInode(7), true, 'An unmounted mount caches nothing');
  await assert.rejects(notifier.invalidateInode(7), /EIO/);
});

test('an unknown request is answered with ENOSYS, so that the kernel does the call by itself', () => {
  const exchange = new Exchange({}, STRICT);
  exchange.ask(9999, 7, Buffer.alloc(64));
  assert.equal(exchange.last().error, ENOSYS);
});
