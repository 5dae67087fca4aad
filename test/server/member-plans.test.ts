import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { Command } from '../../wire/catalog-api.ts';
import { FILE, SmallCluster, type SmallServer, STEADY } from './small-cluster.ts';

type Plan = Extract<Command, { kind: 'plan-members' }>;

/**
 * Servers a, b and c have the file with d, which leaves it and joins it again.
 * @param answer to each plan
 */
async function clusterOf(answer: (plan: Plan) => Promise<object>) {
  const said: string[] = [];
  const command = async (one: Command): Promise<object> => {
    if (one.kind === 'follow-view') said.push(`is ${one.view.members.join('')}`);
    if (one.kind !== 'plan-members') return {};
    said.push(`plan ${one.members.join('')}`);
    return answer(one);
  };
  const cluster = new SmallCluster(['a', 'b', 'c', 'd'], { command, durably: command }, STEADY);
  await cluster.ready();
  const [a] = cluster.servers as [SmallServer];
  const change = (members: string, decidedBy?: number) =>
    a.files.changeMembers(FILE, [...members] as ServerId[], decidedBy);
  await change('abc');
  return { cluster, said, change };
}

test('a change of members is planned first, and the plan of a failed change is withdrawn', async (t) => {
  const { cluster, said, change } = await clusterOf(async ({ members }) => ({ planned: members }));
  t.after(() => cluster.close());
  assert.deepEqual([...new Set(said.splice(0))], ['is abc'], 'No member is added');
  await change('abcd');
  assert.deepEqual([...new Set(said.splice(0))], ['plan d', 'is abcd']);
  await change('abcd');
  assert.deepEqual(said.at(-1) === 'is abcd' ? said.slice(0, 1) : said, ['plan ']);
});

test('a change that was decided by an earlier view is not made, and the present view is returned', async (t) => {
  const { cluster, said, change } = await clusterOf(async ({ members }) => ({ planned: members }));
  t.after(() => cluster.close());
  const { number } = await change('abc');
  const present = await change('ab');
  said.splice(0);
  for (const members of ['ac', 'abd']) assert.deepEqual(await change(members, number), present);
  assert.deepEqual([...new Set(said)], ['is ab'], 'The catalog had not heard of it, perhaps');
  assert.deepEqual((await change('ac', present.number)).members.toSorted(), ['a', 'c']);
});

test('members do not change if the plan is refused, or a later one exists', async (t) => {
  let answer: () => Promise<object> = async () => ({ planned: [] });
  const { cluster, said, change } = await clusterOf(() => answer());
  t.after(() => cluster.close());
  await assert.rejects(change('abcd'), { code: 'busy' });
  answer = () => Promise.reject(new ServiceError('precondition-failed', 'Server d is removed'));
  await assert.rejects(change('abcd'), { code: 'precondition-failed' });
  assert.ok(!said.includes('is abcd'));
});

test('if members of the catalog have an earlier release, members change without a plan', async (t) => {
  const refusals = [
    new ServiceError('precondition-failed', 'Upgrade first', { outdated: ['c'] }),
    new ServiceError('bad-request', 'There is no such command'),
  ];
  const { cluster, said, change } = await clusterOf(() => Promise.reject(refusals.shift()));
  t.after(() => cluster.close());
  assert.deepEqual((await change('abcd')).members.toSorted(), ['a', 'b', 'c', 'd']);
  await change('abc');
  assert.deepEqual((await change('abcd')).members.toSorted(), ['a', 'b', 'c', 'd']);
  assert.ok(said.includes('plan d'));
});

test('plans and views of many files go to the catalog together, or singly if it does not know that', async (t) => {
  for (const isKnown of [true, false]) {
    const files = Array.from({ length: 20 }, (_, place) => (FILE + place) as FileId);
    const said: string[] = [];
    const command = async (one: Command): Promise<object> => {
      said.push(one.kind);
      if (one.kind === 'plan-members') return { planned: one.members };
      if (one.kind !== 'plan-files' && one.kind !== 'follow-views') return {};
      if (!isKnown) throw new ServiceError('precondition-failed', 'Upgrade first', { outdated: ['c'] });
      return one.kind === 'plan-files'
        ? { plans: one.files.map(({ members }) => ({ planned: members })) }
        : {};
    };
    const cluster = new SmallCluster(['a', 'b', 'c', 'd'], { command, durably: command }, STEADY);
    t.after(() => cluster.close());
    await cluster.ready();
    const [a] = cluster.servers as [SmallServer];
    const views = await Promise.all(
      files.map((file) => a.files.changeMembers(file, [...'abc'] as ServerId[])),
    );
    assert.ok(views.every(({ members }) => members.length === 3));
    const count = (kind: Command['kind']) => said.filter((one) => one === kind).length;
    if (isKnown) assert.ok(count('follow-view') + count('follow-views') < 10, `${said}`);
    else assert.equal(count('follow-view'), 20);
  }
});
