import assert from 'node:assert/strict';
import { constants } from 'node:os';
import { test } from 'node:test';
import { ERRORS, type ErrorCode, ServiceError } from '../../base/errors.ts';
import { unknownOutcome } from '../../client/transport/send-once.ts';
import { ERRNO, ErrnoError, errnoNumber } from '../../fuse/errno.ts';

test('each error code has an error number', () => {
  assert.deepEqual(Object.keys(ERRNO).sort(), Object.keys(ERRORS).sort());
  for (const code of Object.keys(ERRORS) as ErrorCode[]) {
    const number = errnoNumber(new ServiceError(code, 'by intent'));
    assert.ok(Number.isInteger(number) && number < 0, `${code} is answered with ${number}`);
  }
});

test('errors without a code are EIO', () => {
  assert.equal(errnoNumber(new ErrnoError('EILSEQ', 'by intent')), -constants.errno.EILSEQ);
  assert.equal(errnoNumber(new TypeError('by intent')), -constants.errno.EIO);
  assert.equal(errnoNumber(undefined), -constants.errno.EIO);
});

test('a request without a certain answer is ETIMEDOUT, or EIO if it cannot be repeated', () => {
  const late = new ServiceError('no-majority', 'by intent');
  const unanswered = new ServiceError('unknown', 'by intent', {}, { cause: late });
  assert.equal(errnoNumber(unanswered), -constants.errno.ETIMEDOUT);
  assert.equal(errnoNumber(new ServiceError('unknown', 'by intent')), -constants.errno.ETIMEDOUT);
  const forgotten = unknownOutcome(new ServiceError('session-expired', 'by intent'));
  assert.equal(errnoNumber(forgotten), -constants.errno.EIO);
});
