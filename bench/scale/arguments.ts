import { type CommandLine, commandLineOf, countOption, UsageError } from '../command-line.ts';

/** The sections, in the order in which they run. */
export const SECTIONS = ['files', 'lookups', 'servers', 'volumes', 'move', 'many'] as const;
export type SectionName = (typeof SECTIONS)[number];

export const USAGE = `npm run bench:scale -- [--files 100000] [--bytes 200] [--servers N] [--volumes 300] [--idle 20] [--minutes 10] [${SECTIONS.join('] [')}]
How a cluster of real server processes grows: with its files, servers, catalog members and volumes with catalogs of
their own. Without names, all sections. --files is the number of files in the sections "files" and "move", and --bytes the size of each:
a file with contents takes 16 KiB on the disks of three servers, an empty one only rows of their databases. --servers is
the number of servers in "servers" (12) and "many" (30); --volumes and --minutes the volumes and the longest time of
"many"; --idle the seconds for which an idle cluster is observed. Processor times are of the servers; times of day mean
little on a shared machine.
`;

const COUNT_MAX = 100_000_000;
/** Contents of a file, if no option says otherwise. */
export const BYTES_DEFAULT = 200;
/** A request with as many files as it may have is not larger than it may be. */
const BYTES_MAX = 8_192;
const SERVERS_MAX = 60;
const VOLUMES_MAX = 10_000;
const MINUTES_MAX = 600;

export interface Wanted {
  readonly files: number;
  /** Contents of each of these files. */
  readonly bytes: number;
  /** Null: as many as the section has without this option. */
  readonly servers: number | null;
  readonly volumes: number;
  readonly minutes: number;
  readonly idleS: number;
  readonly sections: readonly SectionName[];
}

/** @param words the arguments after the program's name */
export function argumentsOf(words: readonly string[]): CommandLine<Wanted> {
  return commandLineOf(
    words,
    { texts: ['files', 'bytes', 'servers', 'volumes', 'idle', 'minutes'], takesNames: true },
    ({ texts, names }) => ({
      files: countOption('files', texts.files ?? '100000', COUNT_MAX),
      bytes: countOption('bytes', texts.bytes ?? `${BYTES_DEFAULT}`, BYTES_MAX, 0),
      servers: texts.servers === undefined ? null : countOption('servers', texts.servers, SERVERS_MAX),
      volumes: countOption('volumes', texts.volumes ?? '300', VOLUMES_MAX),
      minutes: countOption('minutes', texts.minutes ?? '10', MINUTES_MAX),
      idleS: countOption('idle', texts.idle ?? '20', COUNT_MAX),
      sections: names.length === 0 ? SECTIONS : names.map(sectionOf),
    }),
  );
}

function sectionOf(name: string): SectionName {
  const section = SECTIONS.find((known) => known === name);
  if (section === undefined) throw new UsageError(`There is no section "${name}": ${SECTIONS.join(', ')}`);
  return section;
}
