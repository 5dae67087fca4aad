/**
 * Goal: what a mount removes goes together where servers know how, and each by itself where they do not; nothing is removed that is not meant.
 * Method: the client library over a server that answers as the test says.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { ErrorCode } from '../../base/errors.ts';
import { ClusterClient } from '../../client/cluster-client.ts';
import { ClusterBirths } from '../../fuse/cluster-births.ts';
import type { Command, CommandRequest } from '../../wire/catalog-api.ts';
import { FakeCluster, type Reaction } from '../client/fake-cluster.ts';

const NAMES = ['a', 'b', 'c'].map((name, place) => ({ parent: 5, name, inode: 70 + place }));

/** @param react to commands; a text is the code of a problem */
async function started(t: TestContext, react: (command: Command) => object | ErrorCode) {
  const cluster = await FakeCluster.start(1);
  const commands: Command[] = [];
  for (const server of cluster.servers)
    server.intercept = ({ path, body }): Reaction | null => {
      if (path !== '/v1/catalog/commands') return null;
      const { command } = JSON.parse(body.toString()) as CommandRequest;
      commands.push(command);
      const answer = react(command);
      if (typeof answer === 'string') return { kind: 'problem', code: answer };
      return { kind: 'answer', status: 200, text: JSON.stringify(answer) };
    };
  const client = new ClusterClient({ servers: cluster.urls });
  const births = new ClusterBirths(client, 'v', () => undefined);
  t.after(async () => {
    await births.stop();
    await client.close();
    await cluster.stop();
  });
  return { births, commands };
}

test('names go together, each with the inode that is meant, and who removes them', async (t) => {
  const told = {
    files: [0, { code: 'precondition-failed', message: 'b' }, { code: 'storage', message: 'c' }],
  };
  const { births, commands } = await started(t, () => ({ ...told, atNs: '7' }));
  const { outcomes, atNs } = await births.remove(NAMES, 12_345);
  assert.deepEqual(
    outcomes.map(({ kind }) => kind),
    ['removed', 'gone', 'refused'],
  );
  assert.equal(atNs, '7');
  const [command] = commands;
  assert.ok(command?.kind === 'unlink-files' && commands.length === 1);
  assert.deepEqual(command.files, NAMES);
  assert.match(command.by ?? '', /, by uid 12345$/);
});

for (const code of ['bad-request', 'precondition-failed'] as const) {
  test(`where a server does not know how, each goes by itself, and for a while nobody asks again (${code})`, async (t) => {
    const { births, commands } = await started(t, (command) => {
      if (command.kind === 'unlink-files') return code;
      assert.ok(command.kind === 'unlink' && 'parent' in command.place);
      return command.place.name === 'b' ? 'not-found' : { inode: 70, links: 0 };
    });
    for (let request = 0; request < 2; request++) {
      const { outcomes } = await births.remove(NAMES);
      assert.deepEqual(
        outcomes.map(({ kind }) => kind),
        ['removed', 'gone', 'removed'],
      );
    }
    assert.deepEqual(
      commands.map(({ kind }) => kind),
      ['unlink-files', ...Array.from({ length: 6 }, () => 'unlink')],
    );
    const expected = commands.flatMap((command) => (command.kind === 'unlink' ? [command.expect] : []));
    for (const { inode } of NAMES)
      assert.equal(expected.filter((expect) => expect?.kind === 'inode' && expect.inode === inode).length, 2);
  });
}
