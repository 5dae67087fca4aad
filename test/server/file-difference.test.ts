/**
 * Goal: a state transfer makes one replica equal the other, byte for byte, at a cost that follows the difference.
 * Method: two replicas without a core around them, a wire that counts, and, case by case, one kind of difference; then
 * random differences, with a bound on the bytes for each object that differs.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { ServerId } from '../../base/ids.ts';
import { describeFile } from '../conformance/description.ts';
import { assertSame, CountedWire, differing, epochOf, FILE, LoneReplica, turn } from './transfer-pair.ts';

const OBJECT_BYTES = 16;

interface Case {
  readonly name: string;
  /** Objects that both have at first, in one epoch. */
  readonly objects: number;
  differ(source: LoneReplica, target: LoneReplica): Promise<void>;
  /** At most so many requests, and bytes of requests and answers. */
  readonly messagesMax: number;
  readonly bytesMax: number;
}

const filled = (count: number, value: number): Uint8Array => new Uint8Array(count * OBJECT_BYTES).fill(value);

const CASES: readonly Case[] = [
  {
    name: 'nothing differs',
    objects: 5_000,
    differ: async () => undefined,
    messagesMax: 1,
    bytesMax: 200,
  },
  {
    name: 'nothing but the position differs',
    objects: 5_000,
    differ: async (source) => {
      await source.begin(epochOf(9, 'b'));
      await source.truncate(source.store.attributes(FILE).sizeBytes);
    },
    messagesMax: 1,
    bytesMax: 200,
  },
  {
    name: 'the newest object differs',
    objects: 5_000,
    differ: (source) => source.write(3_000 * OBJECT_BYTES, filled(1, 9)),
    messagesMax: 1,
    bytesMax: 250,
  },
  {
    name: 'three appends and an overwrite',
    objects: 5_000,
    differ: async (source) => {
      for (let times = 0; times < 3; times++)
        await source.write((5_000 + times) * OBJECT_BYTES, filled(1, 7));
      await source.write(5, Uint8Array.of(1, 2, 3));
    },
    messagesMax: 1,
    bytesMax: 350,
  },
  {
    name: 'a truncated tail',
    objects: 5_000,
    differ: (source) => source.truncate(2_000 * OBJECT_BYTES + 3),
    messagesMax: 5,
    bytesMax: 800,
  },
  {
    name: 'a hole punched by truncate and extend',
    objects: 5_000,
    differ: async (source) => {
      await source.truncate(1_000 * OBJECT_BYTES);
      await source.truncate(5_000 * OBJECT_BYTES);
      await source.write(4_999 * OBJECT_BYTES, filled(1, 3));
    },
    messagesMax: 5,
    bytesMax: 1_200,
  },
  {
    name: 'a punched hole, of whole objects and parts of others',
    objects: 5_000,
    differ: (source) => source.punch(1_000 * OBJECT_BYTES + 5, 3_000 * OBJECT_BYTES + 7),
    messagesMax: 5,
    bytesMax: 2_000,
  },
  {
    name: 'one object punched away',
    objects: 5_000,
    differ: (source) => source.punch(77 * OBJECT_BYTES, 78 * OBJECT_BYTES),
    messagesMax: 6,
    bytesMax: 2_000,
  },
  {
    name: 'a hole that no other has, at the laggard',
    objects: 5_000,
    differ: async (source, target) => {
      await target.punch(100 * OBJECT_BYTES, 110 * OBJECT_BYTES);
      await source.begin(epochOf(2, 'b'));
    },
    messagesMax: 8,
    bytesMax: 4_000,
  },
  {
    name: 'an uncommitted suffix of an old epoch at the laggard, more at the source',
    objects: 5_000,
    differ: async (source, target) => {
      for (const object of [100, 101, 4_900, 6_000]) await target.write(object * OBJECT_BYTES, filled(1, 66));
      await source.begin(epochOf(2, 'b'));
      await source.write(101 * OBJECT_BYTES, filled(1, 5));
    },
    messagesMax: 6,
    bytesMax: 1_500,
  },
  {
    name: 'an uncommitted truncate at the laggard',
    objects: 5_000,
    differ: async (source, target) => {
      await target.truncate(10);
      await source.begin(epochOf(2, 'b'));
    },
    messagesMax: 28,
    bytesMax: 5_000 * (OBJECT_BYTES + 30),
  },
  {
    name: 'the file was deleted',
    objects: 5_000,
    differ: (source) => source.apply({ kind: 'delete' }),
    messagesMax: 2,
    bytesMax: 400,
  },
  {
    name: 'the laggard has nothing yet',
    objects: 0,
    differ: (source) => source.write(0, filled(10_000, 8)),
    messagesMax: 44,
    bytesMax: 10_000 * (OBJECT_BYTES + 30),
  },
  {
    name: 'everything differs, and in no order',
    objects: 5_000,
    differ: async (source, target) => {
      await target.begin(epochOf(5, 'c'));
      await target.write(0, filled(5_000, 1));
      await source.begin(epochOf(6, 'b'));
      for (let at = 0; at < 5_000; at += 500)
        await source.write(((at * 7) % 5_000) * OBJECT_BYTES, filled(500, at));
    },
    messagesMax: 23,
    bytesMax: 5_000 * (OBJECT_BYTES + 30),
  },
  {
    name: 'objects far apart in a sparse file',
    objects: 40,
    differ: async (source, target) => {
      for (let power = 10; power < 44; power += 3)
        await target.write(2 ** power * OBJECT_BYTES, filled(1, 1));
      await source.begin(epochOf(3, 'b'));
      for (let power = 11; power < 44; power += 4)
        await source.write(2 ** power * OBJECT_BYTES, filled(1, 2));
    },
    messagesMax: 10,
    bytesMax: 2_000,
  },
];

for (const { name, objects, differ, messagesMax, bytesMax } of CASES) {
  test(`${name}: brought to the same state, in ${messagesMax} messages and ${bytesMax} bytes at most`, async () => {
    const source = await LoneReplica.make(OBJECT_BYTES);
    const target = await LoneReplica.make(OBJECT_BYTES);
    for (const replica of [source, target]) if (objects > 0) await replica.write(0, filled(objects, 4));
    await differ(source, target);
    const wire = new CountedWire({ source });
    await wire.bring(target, 'source');
    await assertSame(target, source);
    assert.ok(wire.messages <= messagesMax, `${wire.messages} messages: ${wire.asked.join(' ')}`);
    assert.ok(wire.bytes <= bytesMax, `${wire.bytes} bytes`);
  });
}

test('a transfer that was interrupted continues, and does not start again', async () => {
  const source = await LoneReplica.make(4096);
  const target = await LoneReplica.make(4096);
  await source.fill(3_000 * 4096, 1);
  const wire = new CountedWire({ source });
  let served = 0;
  wire.fault = async (_server, method, serve) => {
    if (method === 'objects' && served++ >= 5) throw new Error('the source died');
    return serve();
  };
  await assert.rejects(wire.bring(target, 'source'), /the source died/);
  const before = wire.bytes;
  assert.ok(before > 5_000_000, `${before} bytes came before`);
  wire.fault = (_server, _method, serve) => serve();
  await wire.bring(target, 'source');
  await assertSame(target, source);
  // 12 MB in all, and again the entries of objects that were missing the first time.
  assert.ok(wire.bytes < 12_900_000, `${before} bytes, then ${wire.bytes - before}`);
});

test('objects of an earlier transfer are used while they are wanted, and dropped otherwise', async () => {
  const source = await LoneReplica.make(OBJECT_BYTES);
  const target = await LoneReplica.make(OBJECT_BYTES);
  await source.write(0, filled(2_000, 1));
  const wire = new CountedWire({ source });
  wire.fault = async (_server, method, serve) => {
    if (method === 'objects') throw new Error('the source died');
    return serve();
  };
  await assert.rejects(wire.bring(target, 'source'), /the source died/);
  assert.notEqual(target.store.staged(FILE, 100), null);
  await source.truncate(90 * OBJECT_BYTES);
  await source.write(50 * OBJECT_BYTES, filled(1, 2));
  wire.fault = (_server, _method, serve) => serve();
  await wire.bring(target, 'source');
  await assertSame(target, source);
});

test('objects are fetched from every replica that has them, also from those that have other versions of some', async () => {
  const [source, second, target] = [
    await LoneReplica.make(64 * 1024),
    await LoneReplica.make(64 * 1024),
    await LoneReplica.make(64 * 1024),
  ];
  for (const replica of [source, second]) await replica.fill(200 * 64 * 1024, 1);
  await source.write(5, Uint8Array.of(7));
  await source.write(150 * 64 * 1024, Uint8Array.of(7));
  const wire = new CountedWire({ source, second });
  await wire.bring(target, 'source', ['second']);
  await assertSame(target, source);
  const bySecond = wire.asked.filter((asked) => asked === 'objects@second').length;
  assert.ok(bySecond >= 3, `${bySecond} calls to the second`);
});

interface Fault {
  readonly name: string;
  /** Of the two that have the objects, `bad` does this. */
  fault(serve: () => Promise<Uint8Array>): Promise<Uint8Array>;
}

const FAULTS: readonly Fault[] = [
  { name: 'refuses', fault: () => Promise.reject(new Error('another epoch was promised')) },
  { name: 'never answers', fault: () => new Promise(() => undefined) },
  {
    name: 'sends garbage',
    fault: async (serve) => {
      const answer = (await serve()).slice();
      for (let at = 9; at < answer.length; at += 1_000) answer[at] = (answer[at] as number) ^ 0x10;
      return answer;
    },
  },
  { name: 'sends nothing', fault: async () => new Uint8Array(0) },
  {
    name: 'has none of them',
    fault: async (serve) => {
      const count = Math.floor((await serve()).length / 65_541);
      return new Uint8Array(count);
    },
  },
];

for (const { name, fault } of FAULTS) {
  for (const bad of ['source', 'second']) {
    test(`a server that ${name} does not stop a transfer: ${bad}`, async () => {
      const [source, second, target] = [
        await LoneReplica.make(65_536),
        await LoneReplica.make(65_536),
        await LoneReplica.make(65_536),
      ];
      for (const replica of [source, second]) {
        for (let at = 0; at < 150; at++) await replica.write(at * 65_536, new Uint8Array(65_536).fill(at));
      }
      const wire = new CountedWire({ source, second });
      wire.fault = (server, method, serve) =>
        server === bad && method === 'objects' ? fault(serve) : serve();
      await wire.bring(target, 'source', ['second'], { patienceMs: 1 });
      await assertSame(target, source);
    });
  }
}

test('an object that no server has intact is installed as lost, and all others with it', async () => {
  const [source, second, target] = [
    await LoneReplica.make(OBJECT_BYTES),
    await LoneReplica.make(OBJECT_BYTES),
    await LoneReplica.make(OBJECT_BYTES),
  ];
  for (const replica of [source, second]) {
    await replica.write(0, filled(20, 1));
    replica.store.damage(FILE, 13);
  }
  const wire = new CountedWire({ source, second });
  const { lost } = await wire.bring(target, 'source', ['second']);
  assert.deepEqual(lost, [13]);
  assert.ok(wire.messages < 10, `${wire.messages} messages`);
  assert.deepEqual(
    describeFile(target.store, FILE),
    describeFile(source.store, FILE),
    'Its version is known',
  );
  const [entry] = target.store.entries(FILE, 13, 13, 1);
  assert.ok(entry !== undefined);
  const { versionEpoch, versionSeq } = entry;
  await assert.rejects(target.store.readObject(FILE, 13, versionEpoch, versionSeq), { code: 'integrity' });
  for (const index of [12, 14]) {
    const at = index * OBJECT_BYTES;
    const [mine, theirs] = [target, source].map(({ store }) => store.read(FILE, at, OBJECT_BYTES));
    assert.deepEqual(await mine, await theirs);
  }
});

test('an object that a silent server may have intact is not declared lost', async () => {
  const source = await LoneReplica.make(OBJECT_BYTES);
  const target = await LoneReplica.make(OBJECT_BYTES);
  await source.write(0, filled(20, 1));
  source.store.damage(FILE, 13);
  const wire = new CountedWire({ source, second: source });
  wire.fault = (server, _method, serve) =>
    server === 'second' ? Promise.reject(new Error('It is away')) : serve();
  const bringing = wire.bring(target, 'source', ['second']);
  await assert.rejects(bringing, { code: 'integrity', message: /Object 13 of file/ });
  assert.ok(wire.messages < 10, `${wire.messages} messages`);
});

test('a damaged object here is fetched, although its version is right', async () => {
  const source = await LoneReplica.make(OBJECT_BYTES);
  const target = await LoneReplica.make(OBJECT_BYTES);
  for (const replica of [source, target]) await replica.write(0, filled(100, 1));
  target.store.damage(FILE, 42);
  target.subject.markDamaged(42);
  const wire = new CountedWire({ source });
  await wire.bring(target, 'source');
  await assertSame(target, source);
  assert.equal(wire.messages, 2);
});

test('a damaged object here is fetched, also if an earlier transfer wanted another version of it', async () => {
  const [source, second, target] = [
    await LoneReplica.make(OBJECT_BYTES),
    await LoneReplica.make(OBJECT_BYTES),
    await LoneReplica.make(OBJECT_BYTES),
  ];
  for (const replica of [source, second, target]) await replica.write(0, filled(1_000, 1));
  target.store.damage(FILE, 42);
  target.subject.markDamaged(42);
  await source.write(0, filled(600, 2));
  const wire = new CountedWire({ source, second });
  wire.fault = async (server, method, serve) => {
    if (server === 'source' && method === 'objects') throw new Error('the source died');
    return serve();
  };
  await assert.rejects(wire.bring(target, 'source'), /the source died/);
  await wire.bring(target, 'second');
  await assertSame(target, second);
});

test('a laggard whose own state changes during a transfer compares again', async () => {
  const source = await LoneReplica.make(OBJECT_BYTES);
  const target = await LoneReplica.make(OBJECT_BYTES);
  await source.write(0, filled(1_000, 1));
  const wire = new CountedWire({ source });
  let calls = 0;
  wire.fault = async (_server, method, serve) => {
    if (method === 'objects' && calls++ === 1) await target.write(500 * OBJECT_BYTES, filled(3, 9));
    return serve();
  };
  await wire.bring(target, 'source');
  await assertSame(target, source);
  assert.equal(wire.asked.filter((asked) => asked.startsWith('compare')).length, 2);
});

test('a transfer begins once all objects of an earlier one are on the disk', async () => {
  const source = await LoneReplica.make(OBJECT_BYTES);
  const plain = await LoneReplica.make(OBJECT_BYTES);
  await source.write(0, filled(1, 1));
  const held: (() => void)[] = [];
  const store = new Proxy(plain.store, {
    get: (memory, name) => {
      if (name === 'stage') {
        return async (...staged: Parameters<typeof memory.stage>) => {
          await memory.stage(...staged);
          if (held.length === 0) await new Promise<void>((resolve) => held.push(resolve));
        };
      }
      const member = Reflect.get(memory, name) as unknown;
      return typeof member === 'function' ? member.bind(memory) : member;
    },
  });
  const target = new LoneReplica(store);
  const wire = new CountedWire({ source });
  const earlier = assert.rejects(wire.bring(target, 'source'), { code: 'precondition-failed' });
  while (held.length === 0) await turn();
  const later = wire.bring(target, 'source');
  for (let turns = 0; turns < 10; turns++) await turn();
  assert.equal(wire.messages, 1);
  held[0]?.();
  await Promise.all([earlier, later]);
  await assertSame(target, source);
});

test('a replica with other bytes under the same versions is still asked for objects that it may have', async () => {
  const [source, second, target] = [
    await LoneReplica.make(64 * 1024),
    await LoneReplica.make(64 * 1024),
    await LoneReplica.make(64 * 1024),
  ];
  await source.fill(240 * 64 * 1024, 1);
  await second.fill(240 * 64 * 1024, 2);
  const wire = new CountedWire({ source, second });
  await wire.bring(target, 'source', ['second']);
  await assertSame(target, source);
  const bySecond = wire.asked.filter((asked) => asked === 'objects@second').length;
  assert.ok(bySecond >= 4, `${bySecond} calls to the second`);
});

test('a transfer continues while its source changes', async () => {
  const source = await LoneReplica.make(OBJECT_BYTES);
  const target = await LoneReplica.make(OBJECT_BYTES);
  await source.write(0, filled(3_000, 1));
  await target.write(0, filled(2_000, 9));
  const wire = new CountedWire({ source });
  let times = 0;
  let state = describeFile(source.store, FILE);
  wire.fault = async (_server, method, serve) => {
    times++;
    if (times % 5 === 0 && method !== 'compare') await source.truncate((2_900 - times) * OBJECT_BYTES);
    await source.write(((times * 37) % 2_500) * OBJECT_BYTES, filled(2, times));
    if (method === 'compare') state = describeFile(source.store, FILE);
    return serve();
  };
  await wire.bring(target, 'source');
  await assertSame(target, source, state);
});

test('every call for objects waits for the pace before it is sent', async () => {
  const source = await LoneReplica.make(64 * 1024);
  const target = await LoneReplica.make(64 * 1024);
  await source.fill(160 * 64 * 1024, 3);
  const wire = new CountedWire({ source });
  let allowedBytes = 0;
  const waiting: (() => void)[] = [];
  const fetching = wire.bring(target, 'source', [], {
    pace: {
      take: async (bytes) => {
        await new Promise<void>((resolve) => waiting.push(resolve));
        allowedBytes += bytes;
      },
    },
  });
  let done = false;
  void fetching.then(() => {
    done = true;
  });
  while (waiting.length < 4) await turn();
  assert.equal(wire.asked.filter((asked) => asked.startsWith('objects')).length, 0);
  while (!done) {
    waiting.shift()?.();
    await turn();
  }
  await assertSame(target, source);
  assert.ok(allowedBytes >= 6 * 1024 * 1024, `${allowedBytes} bytes were allowed`);
});

const change = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('write' as const),
      object: fc.nat(600),
      count: fc.integer({ min: 1, max: 5 }),
      far: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('truncate' as const), object: fc.nat(700) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('punch' as const),
      from: fc.nat(700 * OBJECT_BYTES),
      length: fc.nat(20 * OBJECT_BYTES),
    }),
  },
);
type Change = typeof change extends fc.Arbitrary<infer Value> ? Value : never;

async function play(replica: LoneReplica, changes: readonly Change[], seed: number): Promise<void> {
  for (const [at, next] of changes.entries()) {
    if (next.kind === 'truncate') await replica.truncate(next.object * OBJECT_BYTES + 5);
    else if (next.kind === 'punch') await replica.punch(next.from, next.from + next.length);
    else {
      const first = next.far ? next.object * 1_000 : next.object;
      await replica.write(first * OBJECT_BYTES, filled(next.count, seed + at));
    }
  }
}

test('any two replicas reach the same state, at a cost that follows the difference', {
  timeout: 120_000,
}, async () => {
  const few = fc.array(change, { maxLength: 12 });
  await fc.assert(
    fc.asyncProperty(
      fc.array(change, { maxLength: 40 }),
      few,
      few,
      few,
      fc.boolean(),
      async (common, ofTarget, ofSource, meanwhile, isBroken) => {
        const source = await LoneReplica.make(OBJECT_BYTES);
        const target = await LoneReplica.make(OBJECT_BYTES);
        for (const replica of [source, target]) {
          await replica.write(0, filled(600, 1));
          await play(replica, common, 2);
        }
        await play(target, ofTarget, 100);
        await source.begin(epochOf(2, 'b'));
        await play(source, ofSource, 200);
        const count = differing(source, target);
        const wire = new CountedWire({ source, third: target });
        const changes = [...meanwhile];
        let calls = 0;
        let state = describeFile(source.store, FILE);
        wire.fault = async (_server, method, serve) => {
          if (isBroken && ++calls === 2) throw new Error('the connection broke');
          const next = changes.pop();
          if (next !== undefined) await play(source, [next], 300 + changes.length);
          if (method === 'compare') state = describeFile(source.store, FILE);
          return serve();
        };
        for (let tries = 0; ; tries++) {
          try {
            await wire.bring(target, 'source', ['third' as ServerId]);
            break;
          } catch (error) {
            assert.ok(tries === 0 && isBroken, String(error));
          }
        }
        await assertSame(target, source, state);
        if (meanwhile.length > 0) return;
        // For each object that differs: a path of five nodes, the sixteen entries of its leaf, itself, twice if
        // damaged.
        const bytesMax = (isBroken ? 2 : 1) * (1_000 + count * (6 * 140 + 16 * 20 + OBJECT_BYTES + 40));
        assert.ok(wire.bytes <= bytesMax, `${wire.bytes} bytes for ${count} objects`);
      },
    ),
    { numRuns: Number(process.env.RUNS ?? 150) },
  );
});
