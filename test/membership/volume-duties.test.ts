import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import type { CatalogNumber, ServerId } from '../../base/ids.ts';
import { CatalogMover } from '../../server/membership/catalog-mover.ts';
import { volumeDuties } from '../../server/membership/volume-duties.ts';
import type { ServerCondition } from '../../server/membership/wanted-members.ts';
import { systemWorld } from '../../world/system-world.ts';
import { SERVERS } from '../catalog/fixture.ts';

const log = pino({ level: 'silent' });

function condition(id: ServerId, change: Partial<ServerCondition> = {}): ServerCondition {
  const room = { zone: '', freeBytes: 50, totalBytes: 100 };
  const well = { reachable: true, registered: true, toBeReplaced: false, isSteady: true } as const;
  return { id, state: 'in', ...room, ...well, ...change };
}

/** @returns the members after a round of the mover */
async function moved(
  catalog: number,
  before: readonly string[],
  servers: readonly ServerCondition[],
): Promise<readonly ServerId[]> {
  let members = before as readonly ServerId[];
  const duties = volumeDuties({
    ...{ catalog: catalog as CatalogNumber, log },
    isConnected: () => true,
    changeMembers: async (wanted) => {
      members = wanted;
      return { number: 2, members: wanted };
    },
  });
  const mover = new CatalogMover({
    ...{ world: systemWorld, log, catalog: catalog as CatalogNumber },
    catalogMembers: () => members,
    catalogMembersWanted: duties.membersWanted,
    changeCatalogMembers: duties.changeMembers,
    commandsVersion: () => 1_000,
  });
  await mover.move(servers, null);
  return members;
}

test("a volume's catalog stays on its three servers, however many there are", async () => {
  const all = SERVERS.map((id) => condition(id));
  assert.deepEqual(await moved(1, ['s1', 's2', 's3'], all), ['s1', 's2', 's3']);
  const two = await moved(1, ['s1'], all.slice(0, 2));
  assert.deepEqual(two, ['s1'], 'Two survive no more failures than one does');
  assert.equal((await moved(1, ['s1'], all.slice(0, 3))).length, 3);
});

test("a volume's catalog leaves a draining server, to another zone", async () => {
  const zones = ['a', 'b', 'c', 'b', 'c'];
  const servers = SERVERS.map((id, place) => {
    return condition(id, { zone: zones[place] ?? '', ...(id === 's2' ? { state: 'draining' } : {}) });
  });
  for (let catalog = 1; catalog < 10; catalog++)
    assert.deepEqual(await moved(catalog, ['s1', 's2', 's3'], servers), ['s1', 's3', 's4']);
});

test('catalogs of volumes that leave a server spread over the others', async () => {
  const others = Array.from({ length: 5 }, (_, place) => condition(`t${place}` as ServerId));
  const members = ['s1', 's2', 's3'] as ServerId[];
  const servers = [...members.map((id) => condition(id)), ...others];
  const leaving = servers.map((one) => (one.id === 's1' ? { ...one, state: 'draining' as const } : one));
  const taken = new Map<string, number>();
  for (let catalog = 1; catalog <= 100; catalog++) {
    const added = (await moved(catalog, members, leaving)).filter((id) => !members.includes(id));
    assert.equal(added.length, 1);
    for (const id of added) taken.set(id, (taken.get(id) ?? 0) + 1);
  }
  assert.equal(taken.size, others.length);
  for (const [id, count] of taken) assert.ok(count >= 8 && count <= 40, `${id} has ${count}`);
});

test("a volume's catalog uses no server that is not in its list", () => {
  const duties = volumeDuties({
    ...{ catalog: 1 as CatalogNumber, log },
    isConnected: () => true,
    changeMembers: () => assert.fail('It moves nothing'),
  });
  assert.deepEqual(duties.candidates([]), []);
});
