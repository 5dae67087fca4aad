/**
 * Loaded before the tests of a simulation (`node --import`). Node's test runner tracks each promise, to report an
 * unhandled error with its test. A simulation makes so many that this takes a sixth of its processor time; such an
 * error fails its file here, and not a test of it.
 */
import { createHook } from 'node:async_hooks';

const without = createHook({ trackPromises: false } as Parameters<typeof createHook>[0]);
/** Where a hook records that it does not track promises. */
const marks = Object.getOwnPropertySymbols(without).filter(
  ({ description }) => description === 'kNoPromiseHook',
);
const prototype = Object.getPrototypeOf(without) as typeof without;
const { enable } = prototype;
prototype.enable = function () {
  return enable.call(Object.assign(this, Object.fromEntries(marks.map((mark) => [mark, true]))));
};
