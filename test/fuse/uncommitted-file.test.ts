/**
 * Goal: an uncommitted file has the bytes that were written to it, returns a state for each change as any file does,
 * and behaves as any other file once the cluster has it, however that happened.
 * Method: one such file, over a cluster whose answers the test sets; a byte array is the model of its contents.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import type {
  Attributes,
  BackendFile,
  ContentVersion,
  CreateOutcome,
  FileState,
  NewFile,
} from '../../fuse/backend.ts';
import { UncommittedFile, type UncommittedFileParts } from '../../fuse/pending/uncommitted-file.ts';
import { NEW_FILE_BYTES_MAX } from '../../wire/new-files.ts';
import { systemWorld } from '../../world/system-world.ts';

const SIZE_MAX = 3_000;
const LATER_NS = '9';

const BEFORE: Attributes = {
  ...{ inode: 7, kind: 'file', mode: 0o644, links: 1, sizeBytes: 0, target: '', device: 0, uid: 1, gid: 2 },
  ...{ accessedNs: '1', modifiedNs: '1', changedNs: '1', replicas: [], live: false, xattrs: 0 },
  contents: { epoch: 0, seq: 0 },
};

/** The catalog of the volume that the directory has become, and the number that it reserves. */
const THERE = 3 as CatalogNumber;
const RESERVED_THERE = 300;
const MOVED = new ServiceError('not-found', 'Moved by intent', { elsewhere: true, movedTo: THERE });

type Outcome = CreateOutcome['kind'] | 'unknown';

/** A new file, the cluster's calls, and the file's reports. */
function started(isNamed = false) {
  const calls: string[] = [];
  const told = {
    keptBytes: 0,
    failed: 0,
    lost: 0,
    reported: [] as boolean[],
    doubted: 0,
    there: 0,
    inode: 0,
  };
  const cluster = {
    /** The outcome of a creation with contents. */
    outcome: 'created' as Outcome,
    /** The size of a file that an ordinary creation finds. */
    foundBytes: 0,
    /** Whether an ordinary creation creates the file, or finds it. */
    created: true,
    /** The version of the contents of a file that it finds. */
    foundVersion: null as ContentVersion | null,
    makeFails: null as Error | null,
    isFull: false,
    inheritsGroup: false,
    born: null as NewFile | null,
    /** Whether the contents have another version than a write expects. */
    isWritten: false,
    /** The version that they have then. */
    writtenVersion: { epoch: 2, seq: 7 } as ContentVersion,
    refusal: new Error('Refused by intent'),
    /** A creation with contents is answered after this. */
    answer: Promise.resolve(),
    /** Whether the directory has become a volume of the catalog `THERE`. */
    hasMoved: false,
    /** The number that a request without an answer has created there, or left in the directory when it moved. */
    thereBy: null as number | null,
    /** The outcomes of the next creations there; none: they are answered. */
    fatesThere: [] as ('answered' | 'lost-before' | 'lost-after')[],
  };
  let seq = 1;
  const stateOf = (sizeBytes: number, before?: number): FileState => ({
    ...{ sizeBytes, modifiedNs: LATER_NS, contents: { epoch: 5, seq } },
    ...(before === undefined ? {} : { before: { epoch: 5, seq: before } }),
  });
  const change = (name: string, sizeBytes: number) => async (): Promise<FileState> => {
    calls.push(name);
    const before = seq++;
    return stateOf(sizeBytes, before);
  };
  const attributesOf = (sizeBytes: number): Attributes => ({ ...BEFORE, ...stateOf(sizeBytes) });
  const locks = {
    lock: async () => void calls.push('lock'),
    close: async () => void calls.push('close'),
  };
  const there = {
    read: async () => Uint8Array.of(1),
    range: async () => ({ atMs: 1 }),
    write: async (offset: number, parts: readonly Uint8Array[], expect?: ContentVersion) => {
      const name = expect === undefined ? 'write' : `write on ${expect.epoch}.${expect.seq}`;
      if (expect !== undefined && cluster.isWritten) {
        calls.push(name);
        throw new ServiceError('precondition-failed', 'Written by intent');
      }
      return change(name, offset + parts.reduce((sum, { length }) => sum + length, 0))();
    },
    append: change('append', 1),
    truncate: change('truncate', 0),
    state: async () => ({ ...stateOf(6), contents: cluster.writtenVersion }),
    settle: async () => void calls.push('settle'),
    seal: async () => void calls.push('seal'),
    flush: change('flush', 1),
    seek: async () => 0,
    punch: change('punch', 1),
    copyFrom: async () => ({ copiedBytes: 1, state: await change('copy', 1)() }),
    openLocks: () => locks,
  } as unknown as BackendFile;
  const parts: UncommittedFileParts = {
    createWithContents: async (whole) => {
      calls.push('bear');
      const { outcome } = cluster;
      await cluster.answer;
      if (cluster.hasMoved && outcome !== 'unknown') throw MOVED;
      cluster.born = { ...whole, contents: Uint8Array.from(whole.contents) };
      if (outcome === 'unknown') throw new Error('Lost by intent');
      if (outcome === 'not-created') return { kind: 'not-created' };
      if (outcome === 'refused') return { kind: 'refused', error: cluster.refusal };
      return { kind: 'created', attributes: attributesOf(whole.contents.length), namedNs: '3' };
    },
    create: async () => {
      calls.push('make');
      if (cluster.hasMoved) throw MOVED;
      if (cluster.makeFails !== null) throw cluster.makeFails;
      const { created, foundVersion } = cluster;
      const attributes = attributesOf(cluster.foundBytes);
      return {
        attributes: foundVersion === null ? attributes : { ...attributes, contents: foundVersion },
        created,
        namedNs: '3',
        isConditional: true,
        generation: 1,
      };
    },
    createAt: async (catalog, { inode }) => {
      calls.push(`make ${inode} at ${catalog}`);
      const fate = cluster.fatesThere.shift();
      const created = cluster.thereBy === null;
      if (fate === 'lost-before') throw new ServiceError('unknown', 'Lost by intent');
      if (created && inode !== RESERVED_THERE)
        throw new ServiceError('precondition-failed', `Inode ${inode} is not reserved`);
      if (!created && cluster.thereBy !== inode) throw new ServiceError('exists', 'There is another file');
      cluster.thereBy = inode;
      if (fate === 'lost-after') throw new ServiceError('unknown', 'Lost by intent');
      const attributes = { ...BEFORE, inode };
      return { attributes, created, namedNs: '3', isConditional: true, generation: null };
    },
    reserveAt: async (catalog, directory) => {
      calls.push(`reserve in ${directory} at ${catalog}`);
      return RESERVED_THERE;
    },
    changeAttributes: async () => BEFORE,
    attributes: async () => BEFORE,
    takesAttributes: true,
    isConditional: true,
    isDelegated: () => true,
    setAttributes: async (inode, { modifiedNs }) => {
      calls.push(inode === BEFORE.inode ? `times ${modifiedNs}` : `times ${modifiedNs} of ${inode}`);
      return BEFORE;
    },
    open: () => there,
    committed: (_, inode) => {
      told.there++;
      told.inode = inode;
    },
    failed: () => void told.failed++,
    lost: (_, __, isReported) => {
      told.lost++;
      told.reported.push(isReported);
    },
    unknown: () => void told.doubted++,
    budget: {
      add: (_, bytes) => {
        told.keptBytes += bytes;
      },
      release: (bytes) => {
        told.keptBytes -= bytes;
      },
      get isFull() {
        return cluster.isFull;
      },
    },
    inheritsGroup: false,
  };
  const facts: UncommittedFileParts = {
    ...parts,
    get inheritsGroup() {
      return cluster.inheritsGroup;
    },
  };
  const file = new UncommittedFile(systemWorld, { parent: 1, name: 'f' }, BEFORE, facts, isNamed);
  return { file, cluster, calls, told };
}

const bytesOf = (text: string): Uint8Array => Buffer.from(text);

for (const seed of [1, 2, 3]) {
  test(`a file has the bytes that were written to it, and is created with them (SEED=${seed})`, async () => {
    const prng = new Prng(seed);
    for (let round = 0; round < 50; round++) {
      const { file, cluster, calls, told } = started();
      let model = Buffer.alloc(0);
      let changes = 0;
      const sized = (sizeBytes: number): void => {
        const sizedModel = Buffer.alloc(sizeBytes);
        model.copy(sizedModel);
        model = sizedModel;
      };
      const put = (offset: number, bytes: Uint8Array): void => {
        sized(Math.max(model.length, offset + bytes.length));
        model.set(bytes, offset);
      };
      const drawn = (): { readonly offset: number; readonly bytes: Uint8Array } => ({
        offset: prng.integer(0, SIZE_MAX),
        bytes: new Uint8Array(1 + prng.integer(0, SIZE_MAX / 4)).fill(1 + prng.integer(0, 254)),
      });
      const steps: (() => Promise<FileState>)[] = [
        () => {
          const { offset, bytes } = drawn();
          const at = prng.integer(0, bytes.length);
          put(offset, bytes);
          return file.write(offset, [bytes.subarray(0, at), bytes.subarray(at)]);
        },
        () => {
          const parts = [drawn(), drawn()];
          for (const { offset, bytes } of parts) put(offset, bytes);
          return file.writeParts(parts);
        },
        () => {
          const { bytes } = drawn();
          put(model.length, bytes);
          return file.append(bytes);
        },
        () => {
          const sizeBytes = prng.integer(0, SIZE_MAX);
          sized(sizeBytes);
          return file.truncate(sizeBytes);
        },
      ];
      for (let step = 0; step < 12; step++) {
        const [offset, length] = [prng.integer(0, SIZE_MAX), prng.integer(0, SIZE_MAX)];
        const read = await file.read(offset, length);
        const expected = Buffer.from(model.subarray(offset, offset + length));
        const { sizeBytes, contents, before } = await prng.pick(steps)();
        assert.deepEqual(Buffer.from(read), expected, 'Bytes that were read do not change');
        assert.deepEqual(
          [sizeBytes, before, contents],
          [model.length, { epoch: 0, seq: changes }, { epoch: 0, seq: ++changes }],
        );
        assert.equal(file.attributes.sizeBytes, model.length);
      }
      const arrived = await file.ensureCommitted();
      assert.deepEqual(Buffer.from(cluster.born?.contents ?? []), model);
      assert.deepEqual(
        [arrived?.before, arrived?.contents],
        [
          { epoch: 0, seq: changes },
          { epoch: 5, seq: 1 },
        ],
      );
      assert.deepEqual([calls, told.keptBytes, told.there], [['bear'], 0, 1]);
    }
  });
}

test('a write after a time was set has a later time', async () => {
  const { file } = started();
  file.setAttributes({ modifiedNs: '5' });
  await file.append(bytesOf('later'));
  assert.ok(BigInt(file.attributes.modifiedNs) > 5n);
  assert.ok(BigInt(file.attributes.changedNs) > 5n);
});

test('a file that is too large, or for which the budget is used up, is written at the cluster', async () => {
  for (const isFull of [false, true]) {
    const { file, cluster, calls } = started();
    await file.write(0, [bytesOf('small')]);
    cluster.isFull = isFull;
    await file.write(isFull ? 5 : NEW_FILE_BYTES_MAX, [bytesOf('more')]);
    assert.deepEqual(calls, ['make', 'write on 0.0', 'write']);
  }
  const { file, calls } = started();
  await file.append(new Uint8Array(NEW_FILE_BYTES_MAX - 1));
  await file.append(bytesOf('more'));
  assert.deepEqual(calls, ['make', 'write on 0.0', 'append']);
});

test('during its creation, and after one with an unknown outcome, attributes are not set locally', async () => {
  const { file, cluster, calls } = started();
  const { promise, resolve } = Promise.withResolvers<void>();
  cluster.answer = promise;
  cluster.outcome = 'not-created';
  cluster.makeFails = new Error('Fails by intent');
  assert.ok(file.takes({ mode: 0o600 }) && file.staysUncommitted(1));
  const coming = assert.rejects(file.commit.start('with-contents'));
  assert.deepEqual(
    [file.takes({ mode: 0o600 }), file.staysUncommitted(1)],
    [false, false],
    'The request was sent',
  );
  resolve();
  await coming;
  assert.deepEqual(
    [file.takes({ mode: 0o600 }), file.staysUncommitted(1)],
    [false, false],
    'The cluster may have the file',
  );
  cluster.makeFails = null;
  cluster.outcome = 'refused';
  await file.commit.start('with-contents');
  assert.deepEqual(
    calls,
    ['bear', 'make', 'make'],
    'After an ordinary creation there is no creation with contents',
  );
});

const AT_OTHER_NUMBER = ['make', 'make 7 at 3', 'reserve in 1 at 3', 'make 300 at 3'];

test('a file whose directory has become another volume gets a number of that, and is created there', async () => {
  const { file, cluster, calls, told } = started();
  await file.append(bytesOf('text'));
  file.setAttributes({ modifiedNs: '5' });
  cluster.hasMoved = true;
  await file.settle();
  assert.deepEqual(calls, ['bear', ...AT_OTHER_NUMBER, 'write on 0.0', 'times 5 of 300', 'settle']);
  assert.deepEqual([told.there, told.inode, told.doubted, told.lost], [1, 300, 0, 0]);
});

test('there it is created once, whatever becomes of the requests', async () => {
  for (const fates of [['lost-before'], ['lost-after'], ['lost-before', 'lost-after']] as const) {
    const { file, cluster, calls, told } = started();
    await file.append(bytesOf('text'));
    cluster.hasMoved = true;
    for (const fate of fates) {
      // The first request there names the former number, by which nothing can be created.
      cluster.fatesThere = file.commit.isUnsent ? ['answered', fate] : [fate];
      await assert.rejects(file.ensureCommitted(), { code: 'unknown' });
    }
    calls.length = 0;
    await file.settle();
    assert.deepEqual(calls, [
      'make',
      'make 300 at 3',
      'write on 0.0',
      `times ${file.attributes.modifiedNs} of 300`,
      'settle',
    ]);
    assert.deepEqual([told.there, told.inode, cluster.thereBy], [1, 300, 300]);
  }
});

test('a request without an answer does not keep a file from its number there, as that creates nothing', async () => {
  const { file, cluster, calls } = started();
  await file.append(bytesOf('text'));
  cluster.hasMoved = true;
  cluster.fatesThere = ['lost-before'];
  await assert.rejects(file.ensureCommitted(), { code: 'unknown' });
  calls.length = 0;
  await file.ensureCommitted();
  assert.deepEqual(calls.slice(0, 4), AT_OTHER_NUMBER);
});

test('a file that an attempt of unknown outcome has created is found by its number where its directory is', async () => {
  const { file, cluster, calls, told } = started();
  await file.append(bytesOf('text'));
  cluster.makeFails = new ServiceError('unknown', 'Lost by intent');
  cluster.outcome = 'unknown';
  await assert.rejects(file.ensureCommitted(), { code: 'unknown' });
  calls.length = 0;
  [cluster.hasMoved, cluster.thereBy] = [true, 7];
  await file.settle();
  assert.deepEqual(calls.slice(0, 3), ['make', 'make 7 at 3', 'write on 0.0']);
  assert.deepEqual([told.there, told.inode], [1, 7]);
});

test('one that such an attempt may have created is not created again under another number', async () => {
  const { file, cluster, calls } = started();
  await file.append(bytesOf('text'));
  cluster.outcome = 'unknown';
  cluster.makeFails = new ServiceError('unknown', 'Lost by intent');
  await assert.rejects(file.ensureCommitted(), { code: 'unknown' });
  calls.length = 0;
  cluster.hasMoved = true;
  await assert.rejects(file.settle(), { code: 'precondition-failed' });
  assert.deepEqual(calls, ['make', 'make 7 at 3']);
  assert.ok(file.commit.isRefused);
});

test("another client's file of this name there is not replaced", async () => {
  const { file, cluster, calls } = started();
  await file.append(bytesOf('text'));
  [cluster.hasMoved, cluster.thereBy] = [true, 9];
  await assert.rejects(file.settle(), { code: 'exists' });
  assert.deepEqual(calls, ['bear', 'make', 'make 7 at 3']);
  assert.ok(file.commit.isRefused);
});

test('a group that the file inherits from its directory is not set locally', () => {
  const { file, cluster } = started();
  assert.ok(file.takes({ gid: 9 }));
  cluster.inheritsGroup = true;
  assert.deepEqual([file.takes({ gid: 9 }), file.takes({ mode: 0o600 })], [false, true]);
});

test('the catalog is settled only for changes after the creation with contents', async () => {
  const borne = started();
  await borne.file.settle();
  assert.deepEqual(borne.calls, ['bear']);
  await borne.file.append(bytesOf('more'));
  await borne.file.settle();
  assert.deepEqual(borne.calls, ['bear', 'append', 'settle']);
  const made = started();
  made.cluster.outcome = 'not-created';
  await made.file.settle();
  assert.deepEqual(made.calls, ['bear', 'make', 'settle']);
});

test('a refused creation is a late error unless its creation, its sync or its close has returned it', async () => {
  for (const [meanwhile, isReported] of [
    [(file: UncommittedFile) => file.commit.start('with-contents'), false],
    [(file: UncommittedFile) => file.ensureCommitted(), false],
    [(file: UncommittedFile) => file.seal(), false],
    [(file: UncommittedFile) => file.ensureCommitted(true), true],
    [(file: UncommittedFile) => file.flush(), true],
  ] as const) {
    const { file, cluster, told } = started();
    await file.append(bytesOf('text'));
    cluster.outcome = 'refused';
    await assert.rejects(meanwhile(file), /Refused/);
    await assert.rejects(file.settle(), /Refused/);
    assert.deepEqual(told.reported, [isReported], String(meanwhile));
  }
});

test('a refused file takes no memory in the budget, and neither does its later creation', async () => {
  const { file, cluster, told } = started();
  await file.append(bytesOf('text'));
  assert.ok(told.keptBytes > 0);
  cluster.outcome = 'refused';
  for (let round = 0; round < 2; round++) await assert.rejects(file.settle(), /Refused/);
  assert.deepEqual([told.keptBytes, told.lost], [0, 2]);
  cluster.outcome = 'created';
  await file.settle();
  assert.equal(told.keptBytes, 0);
});

test('after an ordinary creation a file gets the times that programs have seen', async () => {
  for (const [outcome, isTouched, text, expected] of [
    ['not-created', false, '', ['bear', 'make']],
    ['not-created', true, '', ['bear', 'make', 'times 5']],
    ['unknown', true, 'text', ['bear', 'make', 'write on 0.0', 'times 5']],
  ] as const) {
    const { file, cluster, calls } = started();
    cluster.outcome = outcome;
    if (text !== '') await file.append(bytesOf(text));
    if (isTouched) file.setAttributes({ modifiedNs: '5' });
    const arrived = await file.ensureCommitted();
    assert.deepEqual(calls, expected);
    assert.equal(arrived?.modifiedNs, isTouched ? '5' : LATER_NS);
  }
  // Further writes set the times anyway.
  const { file, cluster, calls } = started();
  await file.append(bytesOf('text'));
  cluster.isFull = true;
  await file.append(bytesOf('more'));
  assert.deepEqual(calls, ['make', 'write on 0.0', 'append']);
});

test('the state of a file that was found with other contents is not returned', async () => {
  for (const text of ['', 'text']) {
    const { file, cluster } = started();
    cluster.outcome = 'unknown';
    cluster.foundBytes = 9;
    cluster.created = false;
    if (text !== '') await file.append(bytesOf(text));
    assert.equal(await file.ensureCommitted(), undefined);
  }
});

test('after a creation with an unknown outcome the contents are not written again if the file has them', async () => {
  for (const [foundVersion, isOwn] of [
    [{ epoch: 1, seq: 1 }, true],
    [{ epoch: 2, seq: 7 }, false],
  ] as const) {
    const { file, cluster, calls } = started();
    await file.append(bytesOf('text'));
    cluster.outcome = 'unknown';
    Object.assign(cluster, { created: false, foundBytes: 4, foundVersion });
    const arrived = await file.ensureCommitted();
    assert.deepEqual([calls, arrived !== undefined], [['bear', 'make'], isOwn]);
  }
});

for (const isNamed of [false, true]) {
  for (const isFirst of [true, false]) {
    for (const isWritten of [false, true]) {
      const attempt = isFirst ? 'first attempt' : 'attempt after an unknown outcome';
      const since = isWritten ? 'written since' : 'not written since';
      test(`contents are written to the empty file that was created, or not at all (${isNamed ? 'named, ' : ''}${attempt}, ${since})`, async () => {
        const { file, cluster, calls, told } = started(isNamed);
        await file.append(bytesOf('text'));
        cluster.outcome = 'not-created';
        if (!isFirst) {
          if (isNamed) cluster.outcome = 'unknown';
          else {
            cluster.makeFails = new ServiceError('unknown', 'Lost by intent');
            await assert.rejects(file.ensureCommitted(), { code: 'unknown' });
          }
          Object.assign(cluster, { makeFails: null, created: false });
        }
        Object.assign(cluster, { isWritten, foundVersion: { epoch: 0, seq: 0 } });
        if (isWritten) await assert.rejects(file.ensureCommitted(), { errno: 'EIO' });
        else await file.ensureCommitted();
        const made = isNamed ? [] : isFirst ? ['make'] : ['make', 'make'];
        const times = isWritten ? [] : [`times ${file.attributes.modifiedNs}`];
        assert.deepEqual(calls, ['bear', ...made, 'write on 0.0', ...times]);
        if (!isWritten) return;
        // The error stays; reads return what the cluster's file has.
        await assert.rejects(file.settle(), { errno: 'EIO' });
        await assert.rejects(file.append(bytesOf('more')), { errno: 'EIO' });
        assert.deepEqual(await file.read(0, 9), Uint8Array.of(1));
        assert.deepEqual(
          [calls.length, told.keptBytes, file.commit.clusterFile !== null],
          [made.length + 2, 0, true],
        );
      });
    }
  }
}

test('contents of the first epoch that a later attempt finds are those of the file itself', async () => {
  const { file, cluster } = started();
  await file.append(bytesOf('text'));
  cluster.outcome = 'unknown';
  cluster.makeFails = new ServiceError('unknown', 'Lost by intent');
  await assert.rejects(file.ensureCommitted(), { code: 'unknown' });
  Object.assign(cluster, { makeFails: null, created: false, isWritten: true });
  cluster.writtenVersion = { epoch: 1, seq: 1 };
  await file.ensureCommitted();
});

test('if another client has the name, nothing is written to its file, and no further attempt follows', async () => {
  const taken = new ServiceError('exists', 'Taken by intent');
  for (const [outcome, expected] of [
    ['refused', ['bear']],
    ['not-created', ['bear', 'make']],
    ['unknown', ['bear', 'make']],
  ] as const) {
    const { file, cluster, calls, told } = started();
    await file.append(bytesOf('text'));
    Object.assign(cluster, { outcome, refusal: taken, makeFails: taken });
    await assert.rejects(file.ensureCommitted(), taken);
    assert.deepEqual(
      [file.commit.isUnsent, file.staysUncommitted(9), file.takes({ mode: 0o600 })],
      [false, false, false],
    );
    Object.assign(cluster, { outcome: 'created', makeFails: null });
    await assert.rejects(file.append(bytesOf('more')), taken);
    await assert.rejects(file.flush(), taken);
    assert.deepEqual(
      Buffer.from(await file.read(0, 9)),
      bytesOf('text'),
      'Programs that have it open still read their bytes',
    );
    await assert.rejects(file.settle(), taken);
    assert.deepEqual([calls, told], [expected, { ...told, keptBytes: 0, failed: 1, lost: 1, there: 0 }]);
  }
});

test('a file with a hole of a whole object is created at the cluster, which stores the hole', async () => {
  const holed = started();
  await holed.file.append(bytesOf('text'));
  await holed.file.write(8_192, [bytesOf('far')]);
  assert.deepEqual(holed.calls, ['make', 'write on 0.0', 'write']);
  const longer = started();
  await longer.file.truncate(4_096);
  assert.deepEqual(longer.calls, ['make', 'truncate']);
  const near = started();
  await near.file.append(bytesOf('text'));
  await near.file.write(8_191, [bytesOf('near')]);
  assert.deepEqual(near.calls, []);
});

test('once the cluster has the file, it is used as any other, also for locks', async () => {
  const { file, calls } = started();
  assert.equal(await file.range(0, 9), null);
  const [unused, used] = [file.openLocks(() => undefined), file.openLocks(() => undefined)];
  await unused.close();
  assert.deepEqual(calls, [], 'It was not locked');
  const { signal } = new AbortController();
  await used.lock({ kind: 'posix', type: 'shared', owner: 'o', start: 0n, end: 1n, pid: 1 }, false, signal);
  await used.close();
  assert.deepEqual(calls, ['make', 'lock', 'close']);
  assert.ok((await file.range(0, 9)) !== null);
  assert.deepEqual(await file.read(0, 9), Uint8Array.of(1));
});

test('an operation that needs the cluster creates the file there first', async () => {
  for (const [work, expected] of [
    [(file: UncommittedFile) => file.flush(), ['bear', 'flush']],
    [(file: UncommittedFile) => file.seal(), ['bear', 'seal']],
    [(file: UncommittedFile) => file.seek(0, 'data'), ['bear']],
    [(file: UncommittedFile) => file.punch(0, 1, false), ['make', 'write on 0.0', 'punch']],
    [(file: UncommittedFile) => file.copyFrom(8, 0, 0, 1), ['make', 'write on 0.0', 'copy']],
  ] as const) {
    const { file, calls } = started();
    await file.append(bytesOf('text'));
    await work(file);
    assert.deepEqual([calls, file.commit.clusterFile !== null], [expected, true]);
  }
});

for (const code of ['moving', 'busy', 'no-space', 'quota-exceeded'] as const)
  test(`a new file that was refused with "${code}" gets another number after its directory has moved`, async () => {
    const { file, cluster, calls } = started();
    await file.append(bytesOf('text'));
    cluster.outcome = 'not-created';
    cluster.makeFails = new ServiceError(code, 'Refused by intent: not executed');
    await assert.rejects(file.ensureCommitted(), { code });
    calls.length = 0;
    cluster.hasMoved = true;
    await file.ensureCommitted();
    assert.deepEqual(calls.slice(0, 4), AT_OTHER_NUMBER);
  });
