import assert from 'node:assert/strict';
import { constants } from 'node:os';
import { test } from 'node:test';
import { ERRORS, type ErrorCode, ServiceError } from '../../base/errors.ts';
import { lostSession } from '../../client/transport/send-once.ts';
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

test('what had no certain answer in time has timed out, and is broken only where it cannot be repeated', () => {
  const late = new ServiceError('no-majority', 'by intent');
  const unanswered = new ServiceError('unknown', 'by intent', {}, { cause: late });
  assert.equal(errnoNumber(unanswered), -constants.errno.ETIMEDOUT);
  assert.equal(errnoNumber(new ServiceError('unknown', 'by intent')), -constants.errno.ETIMEDOUT);
  const forgotten = lostSession(new ServiceError('session-expired', 'by intent'));
  assert.equal(errnoNumber(forgotten), -constants.errno.EIO);
});
