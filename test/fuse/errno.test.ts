import assert from 'node:assert/strict';
import { constants } from 'node:os';
import { test } from 'node:test';
import { ERRORS, type ErrorCode, ServiceError } from '../../base/errors.ts';
import { ERRNO, ErrnoError, errnoNumber } from '../../fuse/errno.ts';

test('every code of the catalogue has an error number', () => {
  assert.deepEqual(Object.keys(ERRNO).sort(), Object.keys(ERRORS).sort());
  for (const code of Object.keys(ERRORS) as ErrorCode[]) {
    const number = errnoNumber(new ServiceError(code, 'by intent'));
    assert.ok(Number.isInteger(number) && number < 0, `${code} is answered with ${number}`);
  }
});

test('what nobody foresaw is an input or output error', () => {
  assert.equal(errnoNumber(new ErrnoError('EILSEQ', 'by intent')), -constants.errno.EILSEQ);
  assert.equal(errnoNumber(new TypeError('by intent')), -constants.errno.EIO);
  assert.equal(errnoNumber(undefined), -constants.errno.EIO);
});
