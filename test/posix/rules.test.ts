/**
 * Goal: calls on a mount have the effects and errors that POSIX.1-2024 and Linux define.
 * Method: plays the rules of `rules/` on a mount of a real cluster, in the long form over each transport; and on a
 * local directory, where all must hold: otherwise the rule is wrong.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { RealCluster } from '../cluster/real-cluster.ts';
import { SERVERS_OF_FORM } from '../long.ts';
import { localDirectory, mountOver, noMounts, readOnlyView, transportsOfForm } from './mounts.ts';
import { Ground, type Rule, readRules } from './rules.ts';

const RULES_MIN = 200;

const skip = await noMounts();
const rules = readRules('rules');

if (skip === false) await define();
else test('the rules of POSIX', { skip }, () => undefined);

async function define(): Promise<void> {
  assert.ok(rules.length >= RULES_MIN, `There are too few rules: ${rules.length}`);
  const local = await localDirectory();
  after(() => local.remove());
  const cluster = await RealCluster.start({ servers: SERVERS_OF_FORM });
  after(() => cluster.stop());
  await cluster.createVolume('main');
  // All mounts start before the first test is declared: if no declared test is left to run, the runner ends.
  const grounds = [{ over: 'local', directories: [local.path, await readOnlyView(local.path)] as const }];
  for (const over of await transportsOfForm()) {
    const mounts = [await mountOver(cluster, over), await mountOver(cluster, over, '-o', 'ro')] as const;
    for (const mount of mounts) after(() => mount.stop());
    grounds.push({ over, directories: [mounts[0].directory, mounts[1].directory] });
  }
  for (const { over, directories } of grounds) play(over, directories);
}

/** @param directories the same directory twice, the second one read-only */
function play(over: string, directories: readonly [string, string]): void {
  const ground = new Ground(...directories);
  after(() => ground.stop());
  for (const rule of rules)
    test(`${over}: ${rule.page}: ${rule.title}`, { skip: skipOf(rule, over) }, () => ground.play(rule));
}

function skipOf({ title, notOver }: Rule, over: string): string | false {
  return notOver.includes(over) && title;
}
