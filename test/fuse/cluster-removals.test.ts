/**
 * Goal: asynchronous unlinks are sent together, with the fence under which the mount returned them; nothing else is
 * removed.
 * Method: the client library over servers whose answers the test sets.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { ErrorCode } from '../../base/errors.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { ClusterDelegations } from '../../fuse/cluster/cluster-delegations.ts';
import type { Command, CommandRequest } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { FakeCluster, type Reaction } from '../client/fake-cluster.ts';

const NAMES = ['a', 'b', 'c'].map((name, index) => ({
  ...{ parent: 5, name, inode: 70 + index, contents: { epoch: 1, seq: 1 + index } },
  fence: { client: 1, session: 9, inode: 5, generation: 4 },
}));
const { signal } = new AbortController();

/** @param react returns the answer to a command, or the code of an error */
async function started(t: TestContext, react: (command: Command) => object | ErrorCode) {
  const cluster = await FakeCluster.start(1);
  const commands: Command[] = [];
  const owners: unknown[] = [];
  for (const server of cluster.servers)
    server.intercept = ({ path, body }): Reaction | null => {
      if (path !== '/v1/catalog/commands') return null;
      const { command, cache } = JSON.parse(body.toString()) as CommandRequest;
      commands.push(command);
      owners.push(cache);
      const answer = react(command);
      if (typeof answer === 'string') return { kind: 'problem', code: answer };
      return { kind: 'answer', status: 200, text: JSON.stringify(answer) };
    };
  const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  const births = new ClusterDelegations(client, 'v', () => undefined);
  t.after(async () => {
    await births.stop();
    await client.close();
    await cluster.stop();
  });
  return { births, commands, owners };
}

test('unlinks of several files are one command, with the inode and version of each, the fence and the user', async (t) => {
  const told = {
    files: [0, { code: 'precondition-failed', message: 'b' }, { code: 'storage', message: 'c' }],
  };
  const { births, commands, owners } = await started(t, () => ({ ...told, atNs: '7' }));
  const { outcomes, atNs } = await births.unlink(NAMES, { uid: 12_345, signal });
  assert.deepEqual(
    outcomes.map(({ kind }) => kind),
    ['removed', 'absent', 'refused'],
  );
  assert.equal(atNs, '7');
  const [command] = commands;
  assert.ok(command?.kind === 'unlink-fenced' && commands.length === 1);
  assert.deepEqual(
    command.files,
    NAMES.map(({ parent, name, inode }) => ({ parent, name, inode })),
  );
  assert.deepEqual(
    command.contents,
    NAMES.map(({ contents }) => contents),
  );
  assert.deepEqual(owners, [{ client: 1, under: 9, forgets: [5], fence: [{ inode: 5, generation: 4 }] }]);
  assert.match(command.by ?? '', /, by uid 12345$/);
});

test('after `fence-lost` the unlinks are not sent again', async (t) => {
  const { births, commands } = await started(t, () => 'fence-lost');
  await assert.rejects(births.unlink(NAMES, { uid: undefined, signal }), { code: 'fence-lost' });
  assert.equal(commands.length, 1);
});
