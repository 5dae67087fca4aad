/**
 * Goal: a volume's catalog counts as lost only if no majority of its members has replicas with contents.
 * Method: surveys of servers that hold replicas of some view, or do not answer.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber, ServerId } from '../../base/ids.ts';
import type { Trust } from '../../replica/record.ts';
import type { View } from '../../replica/view.ts';
import type { CatalogRow } from '../../server/catalog/catalog-rows.ts';
import { CatalogSurvey } from '../../server/catalog/catalog-survey.ts';

type Six = [ServerId, ServerId, ServerId, ServerId, ServerId, ServerId];
const [A, B, C, D, E, F] = ['a', 'b', 'c', 'd', 'e', 'f'] as ServerId[] as Six;

const ROW: CatalogRow = {
  ...{ number: 3 as CatalogNumber, name: 'big', state: 'ready', members: [A, B, C], view: 1 },
  ...{ made: 1, since: 1, settings: { replicas: 3, objectBytes: 4096 } },
};
type Held = readonly [View, Trust];
const FIRST: View = { number: 1, members: [A, B, C] };

/** @param held replicas; servers without an entry do not answer @returns the survey of the first server */
function surveyOf(held: ReadonlyMap<ServerId, Held | null>): CatalogSurvey {
  const at = (self: ServerId): CatalogSurvey =>
    new CatalogSurvey({
      self,
      storeOf: (number) => {
        assert.equal(number, ROW.number);
        const replica = held.get(self) ?? null;
        if (replica === null) return null;
        const [view, trust] = replica;
        return { trust: () => trust, record: () => ({ view }) as never };
      },
      call: async (to, method, payload) => {
        if (!held.has(to)) throw new ServiceError('no-majority', 'It is not connected');
        return at(to).serve(method, payload) ?? assert.fail(method);
      },
    });
  return at(A);
}

const NOT_LOST = { code: 'precondition-failed' } as const;

test('a catalog is not lost while a majority of its members has it', async () => {
  const whole: Held = [FIRST, 'intact'];
  const two = surveyOf(
    new Map<ServerId, Held | null>([
      [A, whole],
      [C, [FIRST, 'suspect']],
    ]),
  );
  await assert.rejects(two.assertLost(ROW), { ...NOT_LOST, message: /"big" is not lost: a, c have it/ });
  await surveyOf(new Map<ServerId, Held | null>([[A, whole]])).assertLost(ROW);
  await surveyOf(
    new Map<ServerId, Held | null>([
      [A, whole],
      [B, null],
      [C, [FIRST, 'lost']],
    ]),
  ).assertLost(ROW);
  await surveyOf(new Map()).assertLost(ROW);
});

test('members of a move that the root catalog does not know yet are asked, too', async () => {
  const moved: Held = [{ number: 3, members: [D, E, F] }, 'intact'];
  const joint: Held = [{ number: 2, members: [A, B, C], joint: [D, E, F] }, 'intact'];
  const later = surveyOf(
    new Map<ServerId, Held | null>([
      [C, joint],
      [D, joint],
      [E, moved],
      [F, moved],
    ]),
  );
  await assert.rejects(later.assertLost(ROW), { ...NOT_LOST, message: /d, e, f have it/ });
  await surveyOf(
    new Map<ServerId, Held | null>([
      [C, joint],
      [D, joint],
      [E, joint],
      [F, joint],
    ]),
  ).assertLost(ROW);
  const both = surveyOf(
    new Map<ServerId, Held | null>([
      [A, joint],
      [C, joint],
      [D, joint],
      [E, joint],
    ]),
  );
  await assert.rejects(both.assertLost(ROW), NOT_LOST);
});

test('a request without a number is refused, and other calls are not of the survey', async () => {
  const survey = surveyOf(new Map());
  await assert.rejects(survey.serve('catalog-view', Buffer.from('{}')) ?? Promise.resolve(), {
    name: 'MalformedError',
  });
  assert.equal(survey.serve('catalogs', new Uint8Array(0)), null);
});
