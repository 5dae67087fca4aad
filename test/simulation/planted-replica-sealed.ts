/** Known bugs of files that are sealed, and of objects that rot; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

export const PLANTED_SEALED: readonly Planted[] = [
  replica(
    'seal-late',
    'a seal freezes whatever contents a file has when it comes',
    {
      file: 'server/file/file-primary.ts',
      find: 'if (expected !== undefined) this.#assertContents(expected);',
      replace: '',
    },
    {
      test: {
        file: 'test/server/file-service.test.ts',
        name: 'a seal that comes late freezes nothing that was written since',
      },
    },
  ),
  replica(
    '44e',
    'a replica that tells of damage is never brought another state',
    {
      file: 'replica/write-order.ts',
      find: "if (peer.fetching || trust !== 'intact') this.#sendInstall(peer);",
      replace: "if (peer.fetching || (trust !== 'intact' && trust !== 'damaged')) this.#sendInstall(peer);",
    },
    { directed: 'write into a damaged object' },
  ),
  replica(
    '44f',
    'a candidate keeps the lease for ever that cannot fetch what it would lead from',
    {
      file: 'replica/replica.ts',
      find: 'if (this.#failedFetches < FAILED_FETCHES_MAX) return;',
      replace: 'if (this.#failedFetches > 0) return;',
    },
    { conversation: 'fetch-gives-up.txt' },
  ),
  replica(
    '44g',
    'who lost power says nothing to a candidate that does not know its new life',
    {
      file: 'replica/backup.ts',
      find: '      // It is not known there which life this is, and nothing else may be said to it: a promise tells.\n      this.#owesPromise = true;',
      replace: '',
    },
    { conversation: 'trust-backup.txt' },
  ),
  replica(
    '44h',
    'a damaged replica goes back behind what it has acknowledged',
    {
      file: 'replica/backup.ts',
      find: 'if (epochEqual(epoch, standing.installed) && base.seq < standing.seq) return;',
      replace: '',
    },
    { conversation: 'trust-backup.txt' },
  ),
  replica(
    'seal-a',
    'the first seal is taken for the second',
    {
      file: 'server/storage/contents.ts',
      find: "operation.final || attributes.seal === 'final' ? 'final' : 'sealed';",
      replace: "operation.final || attributes.seal !== 'final' ? 'final' : 'sealed';",
    },
    { directed: 'first seal of a minority', seeds: 40 },
  ),
  replica(
    'seal-b',
    'who has only the first seal answers reads by itself',
    {
      file: 'server/file/sealed-file.ts',
      find: "return attributes.seal === 'final' && !attributes.dead ? attributes : null;",
      replace: "return attributes.seal !== 'open' && !attributes.dead ? attributes : null;",
    },
    { directed: 'first seal of a minority', seeds: 40 },
  ),
  replica(
    'seal-c',
    'a change that was not done before the seal is let through after it',
    {
      file: 'server/file/sealed-file.ts',
      find: "if (answer.kind === 'fresh') {",
      replace: "if (answer.kind === 'fresh' && request.number < 0) {",
    },
    { directed: 'primary between the seals', seeds: 40 },
  ),
  replica(
    'seal-d',
    'the seal leaves no trace',
    {
      file: 'server/storage/contents.ts',
      find: 'return { ...state, record, attributes: { ...attributes, seal } };',
      replace: 'return { ...state, record, attributes };',
    },
    { directed: 'sealed and alone', seeds: 40 },
  ),
  replica(
    'seal-e',
    'a sealed file still takes changes',
    {
      file: 'server/storage/contents.ts',
      find: "return !attributes.dead && (attributes.seal === 'open' || operation.kind === 'delete');",
      replace: 'return !attributes.dead;',
    },
    { test: { file: 'test/storage/conformance.test.ts', name: 'a sealed file keeps its contents' } },
  ),
  replica(
    'seal-f',
    'the own sync is enough for a flush, and so for the second seal',
    {
      file: 'replica/write-order.ts',
      find: 'const reached = Math.min(ownSeq, viewReached(this.#countedView, flushedSeq));',
      replace: 'const reached = Math.max(ownSeq, viewReached(this.#countedView, flushedSeq));',
    },
    { directed: 'primary between the seals' },
  ),
];
