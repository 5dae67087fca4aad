/**
 * Goal: what a flush of a file reports of the catalog is true, whatever losses of power of the catalog precede it or
 * occur between its steps.
 * Method: a catalog of one file that the test implements.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EntryFlush } from '../../server/file/entry-flush.ts';

/** A catalog, and what a primary asks of it. */
class Catalog {
  readonly asked: string[] = [];
  epoch = 1;
  isMarked = false;
  /** Called when a flush has ended, and before its answer. */
  flushed = (): void => undefined;
  #isMarkSynced = false;

  losePower(): void {
    this.epoch++;
    this.isMarked = this.#isMarkSynced;
  }

  flush(markedIn: number | null): EntryFlush {
    const flush = new EntryFlush(
      {
        flush: async () => {
          this.asked.push('flush');
          this.#isMarkSynced = this.isMarked;
          this.flushed();
        },
        epoch: () => this.epoch,
        knows: async () => {
          this.asked.push('query');
          return this.isMarked;
        },
        mark: async () => {
          this.asked.push('mark');
          flush.marked(this.epoch);
          this.isMarked = true;
        },
      },
      markedIn,
    );
    return flush;
  }

  /** What remains after another loss. */
  get isSafe(): boolean {
    this.losePower();
    return this.isMarked;
  }
}

function marked(): { readonly catalog: Catalog; readonly names: EntryFlush } {
  const catalog = new Catalog();
  const names = catalog.flush(null);
  names.marked(catalog.epoch);
  catalog.isMarked = true;
  return { catalog, names };
}

test('a mark of the same epoch of the catalog is flushed once, without a query', async () => {
  const { catalog, names } = marked();
  await Promise.all([names.flush(), names.flush()]);
  await names.flush();
  assert.deepEqual(catalog.asked, ['flush']);
  assert.ok(catalog.isSafe);
});

test('a mark that is lost before the flush is set again, and flushed', async () => {
  const { catalog, names } = marked();
  catalog.losePower();
  await names.flush();
  assert.deepEqual(catalog.asked, ['flush', 'query', 'mark', 'flush']);
  assert.ok(catalog.isSafe);
});

test('a mark that is lost and set again by a change between two steps of a flush is flushed', async () => {
  const { catalog, names } = marked();
  catalog.losePower();
  catalog.flushed = () => {
    catalog.flushed = () => undefined;
    catalog.isMarked = true;
  };
  await names.flush();
  assert.deepEqual(catalog.asked, ['flush', 'query', 'flush']);
  assert.ok(catalog.isSafe);
});

test('after a loss between the steps of a flush, it starts again', async () => {
  const catalog = new Catalog();
  const names = catalog.flush(null);
  catalog.flushed = () => {
    catalog.flushed = () => undefined;
    catalog.losePower();
  };
  await names.flush();
  assert.deepEqual(catalog.asked, ['query', 'mark', 'flush', 'query', 'flush']);
  assert.ok(catalog.isSafe);
});

test('a flush after a failed one asks again', async () => {
  const { catalog, names } = marked();
  catalog.flushed = () => {
    catalog.flushed = () => undefined;
    throw new Error('The catalog has no primary');
  };
  await assert.rejects(names.flush(), /no primary/);
  await names.flush();
  assert.deepEqual(catalog.asked, ['flush', 'flush']);
});
