/** `npm run nemesis:schedules`: see `--help`. */
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { amongClients, endOnSignals, ownNetwork } from './among-clients.ts';
import { integerOption, listOption, optionsParse, programRun } from './command-line.ts';
import { CACHES } from './names-arguments.ts';
import { programObstacle } from './names-run.ts';
import { NamespaceNetwork } from './network.ts';
import { MOUNT_PLACES, ScheduleWorld, TROUBLES, type Variant } from './schedule-world.ts';
import { SCHEDULES, type ScheduleName } from './schedules.ts';

const EXIT_OBSTACLE = 2;
const NAMES = Object.keys(SCHEDULES) as ScheduleName[];
const TRANSPORTS = ['kernel', 'native'] as const;
/** The time limits of calls: shorter than the fault, so that mounts stop waiting; longer where files are created. */
const LIMITS: Readonly<Record<ScheduleName, string>> = {
  'member-sets': '120s',
  'lost-answer': '3s',
  'late-unlink': '6s',
  exclusive: '30s',
  'late-command': '2s',
};

const HELP = `Plays schedules in which acknowledged changes were once lost or a file got two histories, each in a cluster of its own with two mounts, and
checks that what was acknowledged is there, and that no file has two member sets.

  npm run nemesis:schedules -- --schedules late-unlink --troubles cut,kill

  --schedules LIST      some of ${NAMES.join(',')}; all by default
  --troubles pause      some of ${TROUBLES.join(',')}: what happens to the mount or the server
  --caches ttl          some of ${CACHES.join(',')}
  --transports kernel   some of ${TRANSPORTS.join(',')}
  --servers 3           3 to 7; files have three replicas
  --rounds 4            how often what takes one name or file is done
  --seed 1

Each combination is played. Needs root on Linux, python3, fuse3 and network namespaces. The exit code is 0 if all was right, 1 if not, 2 if the command
line is mistaken or something of that is missing.`;

interface Options {
  readonly help: boolean;
  readonly names: readonly ScheduleName[];
  readonly variants: readonly Variant[];
  readonly servers: number;
  readonly seed: number;
}

function parse(args: readonly string[]): Options {
  const text = { type: 'string' } as const;
  const values = optionsParse(args, {
    ...{ schedules: text, troubles: text, caches: text, transports: text, servers: text, rounds: text },
    seed: text,
    help: { type: 'boolean' },
  });
  const servers = integerOption('servers', values.servers ?? '3', 3, 7);
  const rounds = integerOption('rounds', values.rounds ?? '4', 1, 100);
  const troubles = listOption('troubles', values.troubles ?? 'pause', TROUBLES);
  const caches = listOption('caches', values.caches ?? 'ttl', CACHES);
  const transports = listOption('transports', values.transports ?? 'kernel', TRANSPORTS);
  return {
    help: values.help === true,
    names: listOption('schedules', values.schedules ?? NAMES.join(','), NAMES),
    variants: troubles.flatMap((trouble) =>
      caches.flatMap((cache) =>
        transports.map((transport) => ({ servers, trouble, cache, transport, rounds })),
      ),
    ),
    servers,
    seed: integerOption('seed', values.seed ?? '1', 1),
  };
}

async function run(options: Options, args: readonly string[]): Promise<number> {
  const places = options.servers + MOUNT_PLACES;
  const own = ownNetwork(places);
  if (own !== null) return played(options, own);
  const obstacle = NamespaceNetwork.obstacle() ?? programObstacle() ?? (await mountObstacle());
  if (obstacle !== null) {
    process.stderr.write(`nemesis:schedules: ${obstacle}\n`);
    return EXIT_OBSTACLE;
  }
  return amongClients(NamespaceNetwork.make(places), import.meta.filename, args);
}

async function played({ names, variants, seed }: Options, network: NamespaceNetwork): Promise<number> {
  endOnSignals();
  let failures = 0;
  for (const name of names)
    for (const variant of variants) {
      const wrong = await play(name, variant, seed, network);
      if (wrong.length > 0) failures++;
    }
  return failures === 0 ? 0 : 1;
}

/** @returns the errors that were found */
async function play(
  name: ScheduleName,
  variant: Variant,
  seed: number,
  network: NamespaceNetwork,
): Promise<readonly string[]> {
  const beganMs = performance.now();
  const world = await ScheduleWorld.start(variant, seed, LIMITS[name], network);
  try {
    await SCHEDULES[name](world);
    await world.end();
  } catch (error) {
    world.wrong.push(error instanceof Error ? (error.stack ?? error.message) : String(error));
    await world.stop();
  } finally {
    network.heal();
  }
  const facts = [...world.facts].map(([fact, count]) => `${fact} ${count}`).join(', ');
  const { trouble, cache, transport, servers } = variant;
  const seconds = Math.round((performance.now() - beganMs) / 1000);
  const verdict = world.wrong.length === 0 ? 'passed' : 'FAILED';
  process.stdout.write(
    `${verdict} ${name}, ${trouble}, ${cache}, ${transport}, ${servers} servers (${seconds} s): ${facts}\n`,
  );
  for (const wrong of world.wrong) process.stdout.write(`  ${wrong}\n`);
  return world.wrong;
}

const PROGRAM = { name: 'nemesis:schedules', help: HELP, parse, run };
process.exitCode = await programRun(PROGRAM, process.argv.slice(2));
