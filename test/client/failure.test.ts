import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { describeFailure } from '../../client/terminal/failure.ts';

/** Goal: each refusal says what to do next, and the advice fits what was refused. */
test('the hint is that of the reason, and more exact if the message says more', () => {
  const said = (message: string) => describeFailure(new ServiceError('not-found', message)).lines;
  assert.deepEqual(said('There is no volume "v"'), [
    'leasehold: There is no volume "v"',
    '  "leasehold volume ls" and "leasehold ls VOLUME:/" list volumes and files',
  ]);
  assert.deepEqual(said('Cannot find v@then:/: There is no snapshot "then" of volume "v"'), [
    'leasehold: Cannot find v@then:/: There is no snapshot "then" of volume "v"',
    '  "leasehold snapshot ls v" lists the snapshots',
  ]);
  assert.deepEqual(
    describeFailure(new ServiceError('bad-request', 'Something is of the unknown kind "x"')).lines,
    [
      'leasehold: Something is of the unknown kind "x"',
      '  the server that was asked is of an earlier release: upgrade all servers',
    ],
  );
});
