import type { AnsweredCommands, FlushAnswer, Query, QueryResults } from '../../wire/catalog-api.ts';

type Kind = Query['kind'];
type Merge<K extends Kind> = (answers: readonly QueryResults[K][]) => QueryResults[K];

/** Examples that an answer names at most. */
const EXAMPLES_MAX = 10;

/** Queries that several catalogs answer, each for what it has. */
const MERGES: { readonly [K in Kind]?: Merge<K> } = {
  volumes: (answers) => ({
    volumes: answers
      .flatMap(({ volumes }) => volumes)
      .toSorted((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name))),
  }),
  servers: (answers) => {
    const [root] = answers as [QueryResults['servers'], ...QueryResults['servers'][]];
    const replicas = new Map<string, number>();
    for (const { servers } of answers)
      for (const server of servers)
        replicas.set(server.id, (replicas.get(server.id) ?? 0) + (server.replicas ?? 0));
    return {
      ...root,
      servers: root.servers.map((server) => ({ ...server, replicas: replicas.get(server.id) ?? 0 })),
    };
  },
  'files-needing': (answers) => ({
    files: sum(answers.map(({ files }) => files)),
    examples: answers.flatMap(({ examples }) => examples).slice(0, EXAMPLES_MAX),
    planned: sum(answers.map(({ planned }) => planned)),
  }),
  'placement-classes': (answers) => ({ classes: answers.flatMap(({ classes }) => classes) }),
  existing: (answers) => ({ inodes: answers.flatMap(({ inodes }) => inodes) }),
  paths: (answers) => ({ paths: answers.flatMap(({ paths }) => paths) }),
  placed: (answers) => ({
    files: answers.flatMap(({ files }) => files),
    reserved: answers.flatMap(({ reserved }) => reserved),
  }),
};

/** @returns whether answers of several catalogs to such a query can be merged */
export function isMergeable(kind: Kind): boolean {
  return MERGES[kind] !== undefined;
}

/** @returns whether answers to such a query show something, and nothing wrong, if some catalogs do not answer */
export function isOfUseInPart(kind: Kind): boolean {
  return kind === 'volumes' || kind === 'servers';
}

/** @param answers of all catalogs that were asked, that of the root catalog first if it was */
export function mergedAnswers<K extends Kind>(kind: K, answers: readonly QueryResults[K][]): QueryResults[K] {
  const [only] = answers;
  if (answers.length === 1 && only !== undefined) return only;
  const merge = MERGES[kind] as Merge<K> | undefined;
  if (merge === undefined) throw new TypeError(`Answers to "${kind}" cannot be merged`);
  return merge(answers);
}

/** @returns the commands that no catalog has: each client's session is in one of them */
export function missingInAll(answers: readonly FlushAnswer[]): AnsweredCommands[] {
  const [first, ...others] = answers;
  return (first?.missing ?? []).flatMap(({ session, numbers }) => {
    const missing = numbers.filter((number) =>
      others.every((answer) =>
        answer.missing.some((one) => one.session === session && one.numbers.includes(number)),
      ),
    );
    return missing.length === 0 ? [] : [{ session, numbers: missing }];
  });
}

function sum(counts: readonly number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}
