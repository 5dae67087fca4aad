/**
 * Goal: two mounts of one volume behave as one file system: an open on one reads what was closed on the other, no
 * append is lost, and one of two programs that race for a name gets it.
 * Method: the rules of `coherence/`, and races of programs on both mounts.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { RealCluster } from '../cluster/real-cluster.ts';
import { isLong, SERVERS_OF_FORM } from '../long.ts';
import { localDirectory, mountPairsOver, noMounts, transportsOfForm } from './mounts.ts';
import type { Outcome } from './program.ts';
import { Ground, readRules } from './rules.ts';

const ROUNDS = isLong ? 30 : 8;
const APPENDS = isLong ? 100 : 30;
const RACERS = [1, 2] as const;

const skip = await noMounts();
if (skip === false) await define();
else test('two mounts', { skip }, () => undefined);

async function define(): Promise<void> {
  const local = await localDirectory();
  after(() => local.remove());
  const cluster = await RealCluster.start({ servers: SERVERS_OF_FORM });
  after(() => cluster.stop());
  await cluster.createVolume('main');
  const mounted = await mountPairsOver(await transportsOfForm(), cluster);
  // On one local directory: a rule that fails there is wrong.
  play('local', local.path, local.path);
  for (const { transport, mounts } of mounted) {
    play(transport, mounts[0].directory, mounts[1].directory);
  }
}

function play(over: string, one: string, two: string): void {
  const ground = new Ground(one, two);
  const directories = [one, two];
  after(() => ground.stop());
  for (const rule of readRules('coherence')) {
    const reason = rule.notOver.includes(over) && rule.title;
    test(`${over}: ${rule.title}`, { skip: reason }, () => ground.play(rule));
  }

  test(`${over}: races of programs on both mounts`, async (t) => {
    const folder = `race-${over}`;
    const programs = RACERS.map((mount) => ground.program('root', mount));
    const both = (call: string, ...values: string[]): Promise<Outcome[]> =>
      Promise.all(programs.map((program) => program.call(call, ...values)));
    const value = (call: string, ...values: string[]): Promise<string> =>
      ground.program('root', 1).value(call, ...values);

    await value('mkdir', `${one}/${folder}`);
    for (const [index, program] of programs.entries()) {
      await program.value('chdir', `${directories[index]}/${folder}`);
    }
    t.after(() => both('forget'));

    for (const [call, wins] of [
      ['create', (name: string) => [name]],
      ['mkdir', (name: string) => [name]],
      ['symlink', (name: string) => ['target', name]],
      ['mkfifo', (name: string) => [name]],
    ] as const) {
      await t.test(`if two programs ${call} one name, one succeeds`, async () => {
        for (let round = 0; round < ROUNDS; round++) {
          const outcomes = await both(call, ...wins(`${call}-${round}`));
          assert.deepEqual(
            outcomes.map(({ errno }) => errno ?? 'done').sort(),
            ['EEXIST', 'done'],
            `round ${round}`,
          );
        }
      });
    }

    await t.test('if two programs rename one file, one succeeds', async () => {
      for (let round = 0; round < ROUNDS; round++) {
        await value('create', `from-${round}`);
        const outcomes = await Promise.all(
          programs.map((program, index) => program.call('rename', `from-${round}`, `to-${round}-${index}`)),
        );
        assert.deepEqual(
          outcomes.map(({ errno }) => errno ?? 'done').sort(),
          ['ENOENT', 'done'],
          `round ${round}`,
        );
      }
    });

    await t.test('if two programs rename onto one name, both succeed, and one of them has it', async () => {
      for (let round = 0; round < ROUNDS; round++) {
        for (const index of [0, 1]) await value('put', `old-${round}-${index}`, `of ${index}`);
        const outcomes = await Promise.all(
          programs.map((program, index) => program.call('rename', `old-${round}-${index}`, `new-${round}`)),
        );
        assert.deepEqual(outcomes, [{ value: '' }, { value: '' }], `round ${round}`);
        assert.match(await value('get', `new-${round}`), /^of [01]$/);
        assert.equal(await value('lstat', `new-${round}`, 'links'), '1');
      }
    });

    await t.test('if two programs link and unlink one name, the link count is right afterwards', async () => {
      await value('create', 'linked');
      for (let round = 0; round < ROUNDS; round++) {
        await both('link', 'linked', 'second');
        const outcomes = await both('unlink', 'second');
        assert.deepEqual(
          outcomes.map(({ errno }) => errno ?? 'done').sort(),
          ['ENOENT', 'done'],
          `round ${round}`,
        );
      }
      // The mount's cached attributes may be older; the answer to a change has the current ones.
      await value('chmod', 'linked', '0600');
      assert.equal(await value('lstat', 'linked', 'links'), '1');
    });

    await t.test('bytes that both append are there once, and in the order of each program', async () => {
      await Promise.all(
        programs.map((program, index) => program.value('append-many', 'log', `${index}-`, APPENDS)),
      );
      for (const program of programs) {
        const lines = (await program.value('get', 'log')).trimEnd().split('\n');
        assert.equal(lines.length, 2 * APPENDS);
        for (const index of [0, 1]) {
          const own = lines.filter((line) => line.startsWith(`${index}-`));
          assert.equal(own.length, APPENDS);
          assert.deepEqual(own, [...own].sort());
        }
      }
    });
  });
}
