/**
 * Goal: a row has the work that was added to it, until it is deleted, and no other row has it.
 * Method: random commands on the works and on a map.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { CellWorks } from '../../lease/cell-works.ts';
import { type CellWork, workBegin } from '../../lease/work.ts';

/** Few, so that they repeat; in one page, in adjacent ones and far away. */
const row = fc.oneof(fc.nat(5), fc.integer({ min: 60, max: 68 }), fc.constantFrom(5_000, 100_000));

test('rows have the works that were added, in any order', () => {
  fc.assert(
    fc.property(fc.array(row, { maxLength: 200 }), (rows) => {
      const works = new CellWorks();
      const expected = new Map<number, CellWork>();
      for (const each of rows) {
        if (expected.delete(each)) works.delete(each);
        else {
          const work = workBegin(each);
          expected.set(each, work);
          works.add(each, work);
        }
        for (const other of new Set(rows)) assert.equal(works.get(other), expected.get(other) ?? null);
      }
    }),
    { numRuns: 100 },
  );
});
