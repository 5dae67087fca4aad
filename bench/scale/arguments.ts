import { type CommandLine, commandLineOf, countOption, UsageError } from '../command-line.ts';

/** The sections, in the order in which they run. */
export const SECTIONS = ['files', 'lookups', 'servers'] as const;
export type SectionName = (typeof SECTIONS)[number];

export const USAGE = `npm run bench:scale -- [--files 100000] [--servers 12] [--idle 20] [${SECTIONS.join('] [')}]
How a cluster of real server processes grows: with its files, its servers and its catalog members. Without names, all
sections. --files is the number of files in the first section, --servers that of the last, --idle the seconds for which
an idle cluster is observed. Processor times are of the servers; times of day mean little on a shared machine.
`;

const COUNT_MAX = 100_000_000;
const SERVERS_MAX = 60;

export interface Wanted {
  readonly files: number;
  readonly servers: number;
  readonly idleS: number;
  readonly sections: readonly SectionName[];
}

/** @param words the arguments after the program's name */
export function argumentsOf(words: readonly string[]): CommandLine<Wanted> {
  return commandLineOf(
    words,
    { texts: ['files', 'servers', 'idle'], takesNames: true },
    ({ texts, names }) => ({
      files: countOption('files', texts.files ?? '100000', COUNT_MAX),
      servers: countOption('servers', texts.servers ?? '12', SERVERS_MAX),
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
