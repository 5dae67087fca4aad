/**
 * Measures how long the catalog is occupied by each slice of a quota that begins, and ends, at a directory with
 * entries.
 *
 *     npm run bench:quota-walks -- [entries, 100000 by default]
 */
import { Catalog } from '../../test/catalog/fixture.ts';

const entries = Number(process.argv[2] ?? 100_000);
const DIRECTORIES = 100;
/** As `server/catalog/quota-walks.ts`. */
const SLICE = 250;
const MEMBERS = ['s1', 's2', 's3'];

function filled(): { readonly catalog: Catalog; readonly inode: number } {
  const catalog = new Catalog();
  const { inode } = catalog.directory('/a');
  const parents = Array.from({ length: DIRECTORIES }, (_, index) => catalog.directory(`/a/d${index}`).inode);
  for (let made = 0; made < entries; made += SLICE) {
    const { first } = catalog.run({ kind: 'reserve-inodes', owner: 4, count: SLICE, members: [MEMBERS] });
    const parent = parents[(made / SLICE) % DIRECTORIES] as number;
    const files = Array.from({ length: SLICE }, (_, index) => ({
      ...{ inode: first + index, parent, name: `f${made + index}`, mode: 0o644, uid: 0, gid: 0 },
      ...{ sizeBytes: 100, contents: { epoch: 1, seq: 1 } },
    }));
    catalog.run({ kind: 'bear', owner: 4, replicas: MEMBERS, objectBytes: 131_072, files });
  }
  return { catalog, inode };
}

function cpuMs(since: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1_000;
}

const { catalog, inode } = filled();
console.log('        slices   median  longest    total  (CPU, ms)');
for (const [name, quota] of [
  ['count', {}],
  ['end', null],
] as const) {
  catalog.run({ kind: 'set-quota', inode, quota, walks: true });
  const slices: number[] = [];
  for (let more = true; more; ) {
    const since = process.cpuUsage();
    more = catalog.run({ kind: 'walk-quotas', countMax: SLICE }).more;
    slices.push(cpuMs(since));
  }
  slices.sort((a, b) => a - b);
  const total = slices.reduce((sum, one) => sum + one, 0);
  const shown = [slices[slices.length >> 1] ?? 0, slices.at(-1) ?? 0, total].map((ms) =>
    ms.toFixed(1).padStart(8),
  );
  console.log(`${name.padEnd(6)} ${String(slices.length).padStart(7)} ${shown.join(' ')}`);
}
