import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { CatalogSubject } from '../../server/catalog/catalog-subject.ts';
import type { CatalogStore } from '../../server/storage/catalog-store.ts';
import { type CatalogTail, encodeTail, type StagedCatalog } from '../../server/storage/catalog-transfer.ts';
import { ByteWriter } from '../../wire/bytes.ts';

const EPOCH: Epoch = { counter: 1, server: 'a' as ServerId, incarnation: 1 as Incarnation };

test('of two fetches only the later one is installed', async () => {
  const installed: (StagedCatalog | null)[] = [];
  const forgotten: StagedCatalog[] = [];
  const store = {
    damage: { isKnown: false },
    rollback: () => undefined,
    describe: () => new Uint8Array(0),
    record: () => ({ installed: EPOCH }),
    stageTail: ({ entries, more }: CatalogTail) => ({
      ...{ kind: 'tail', position: { epoch: EPOCH, seq: entries.length }, entries, isPart: more },
    }),
    unstage: async (staged: StagedCatalog) => void forgotten.push(staged),
    install: async (_epoch: Epoch, _seq: number, staged: StagedCatalog | null) => void installed.push(staged),
  } as unknown as CatalogStore;
  const tailOf = (count: number): Uint8Array => {
    const entries = Array.from({ length: count }, (_, at) => ({
      seq: at + 1,
      epoch: EPOCH,
      body: new Uint8Array(1),
      view: null,
    }));
    return encodeTail({ installed: EPOCH, entries, more: false });
  };
  const subject = new CatalogSubject(store);
  const late = Promise.withResolvers<Uint8Array>();
  const earlier = subject.fetch(() => late.promise);
  const { position } = await subject.fetch(async () => tailOf(2));
  late.resolve(tailOf(1));
  await assert.rejects(earlier, (error: ServiceError) => error.code === 'precondition-failed');
  await subject.install(EPOCH, position.seq, new Uint8Array(0), true);
  assert.deepEqual(
    installed.map((staged) => staged?.position.seq),
    [2],
  );
  assert.equal(forgotten.length, 1);
});

test('a copy that is here is installed although its source does not learn of the end', async () => {
  const staged = { kind: 'snapshot', position: { epoch: EPOCH, seq: 3 }, view: null, file: 'incoming' };
  const installed: unknown[] = [];
  const store = {
    damage: { isKnown: true },
    rollback: () => undefined,
    stagePages: async () => ({ staged, counts: {} }),
    install: async (_epoch: Epoch, _seq: number, taken: unknown) => void installed.push(taken),
  } as unknown as CatalogStore;
  const subject = new CatalogSubject(store);
  const asked: string[] = [];
  const { position } = await subject.fetch(async (method) => {
    asked.push(method);
    if (method === 'snapshot-end') throw new ServiceError('precondition-failed', 'Another epoch is promised');
    return new ByteWriter(16).uint53(1).uint53(4096).finish();
  });
  await subject.install(EPOCH, position.seq, new Uint8Array(0), true);
  assert.deepEqual([asked, installed], [['snapshot', 'snapshot-end'], [staged]]);
});
