/** Known bugs of what clients remember, each noticed by a test of the catalog's service or of the client; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const CACHES = 'test/server/client-caches.test.ts';
const FENCES = 'test/server/fences.test.ts';
const BIRTHS = 'test/fuse/births.test.ts';
const OWN_CONTENTS = 'test/fuse/own-contents.test.ts';
const LIVE_FILES = 'test/fuse/live-files.test.ts';
const TOLD = 'test/fuse/told-contents.test.ts';
const OPEN_NAMES = 'test/fuse/open-names.test.ts';
const OPEN_PATHS = 'test/fuse/open-paths.test.ts';
const BELIEF = 'test/fuse/kernel/kernel-belief.test.ts';
const CACHE = 'test/fuse/attribute-cache.test.ts';
const KEPT = 'test/fuse/kept-names.test.ts';
const REFUSED = 'test/fuse/refused-opens.test.ts';
const REACH = 'test/fuse/catalog-reach.test.ts';
const OWN_NAMES = 'test/fuse/own-names.test.ts';
const LISTINGS = 'test/fuse/known-listings.test.ts';
const REMEMBERING = 'test/client/remembering-client.test.ts';
const MEMORY = 'test/client/memory.test.ts';

export const PLANTED_CLIENT_CACHES: readonly Planted[] = [
  replica(
    '63a',
    'a change does not wait until clients have forgotten what it changes',
    {
      file: 'server/catalog/catalog-service.ts',
      find: 'if (!held.includes(true)) return false;',
      replace: 'if (held.length > 0) return false;',
    },
    { test: { file: CACHES, name: 'nobody believes what is not so (SEED=1)' } },
  ),
  replica(
    '63b',
    'an inode is granted while a change of it is under way',
    {
      file: 'server/catalog/client-caches.ts',
      find: 'if (this.#blocked.has(inode) || this.isDelegated(inode, session.id)) return false;',
      replace: 'if (this.isDelegated(inode, session.id)) return false;',
    },
    { test: { file: CACHES, name: 'nothing of a change under way is granted, until it is over' } },
  ),
  replica(
    '63c',
    'a client counts its session from when the answer came',
    {
      file: 'client/cache-session.ts',
      find: 'this.#renew(sentMs + answer.validMs)',
      replace: 'this.#renew(this.#parts.nowMs() + answer.validMs)',
    },
    { test: { file: CACHES, name: 'nobody believes what is not so (SEED=10)' } },
  ),
  replica(
    '63d',
    'the file that loses its name by a rename is called back from nobody',
    {
      file: 'catalog/inode-tables.ts',
      find: "this.#changes.touch(id);\n    this.#statements.run(\n      'UPDATE inodes SET links = ?, orphaned_ns",
      replace: "this.#statements.run(\n      'UPDATE inodes SET links = ?, orphaned_ns",
    },
    {
      test: {
        file: 'test/server/catalog-touched.test.ts',
        name: 'every inode that looks otherwise afterwards',
      },
    },
  ),
  replica(
    '63e',
    'clients believe for longer than the primary may answer',
    {
      file: 'server/catalog/client-caches.ts',
      find: 'const leaseMs = Math.min(this.#options.leaseMsMax, rightMs);',
      replace: 'const leaseMs = this.#options.leaseMsMax + Math.min(0, rightMs);',
    },
    { test: { file: CACHES, name: 'nobody believes longer than the primary may answer' } },
  ),
  replica(
    '63f',
    'a directory is delegated while another client believes what is in it',
    {
      file: 'server/catalog/client-caches.ts',
      find: 'if (!isAlone || !this.#grantOne(session, inode)) return null;',
      replace: 'if (!this.#grantOne(session, inode)) return null;',
    },
    { test: { file: CACHES, name: 'a directory is delegated to one client, to which all others yield' } },
  ),
  replica(
    '63g',
    'what is delegated to one client is granted to others',
    {
      file: 'server/catalog/client-caches.ts',
      find: 'if (this.#blocked.has(inode) || this.isDelegated(inode, session.id)) return false;',
      replace: 'if (this.#blocked.has(inode)) return false;',
    },
    { test: { file: CACHES, name: 'a directory is delegated to one client, to which all others yield' } },
  ),
  replica(
    '63h',
    'a delegation counts that was called back before the answer with it came',
    {
      file: 'client/delegated.ts',
      find: 'if (mark < Math.max(this.#floor, this.#stamps.get(inode) ?? 0)) return false;',
      replace: 'if (mark < 0) return false;',
    },
    { test: { file: CACHES, name: 'nobody believes what is not so (SEED=1)' } },
  ),
  replica(
    'recall-client',
    'a command recalls nothing from its own client, whatever that was granted since it stopped waiting',
    {
      file: 'server/catalog/client-caches.ts',
      find: 'filter(({ id, client }) => id !== own || client !== owner?.client)',
      replace: 'filter(({ client }) => own === undefined || client !== owner?.client)',
    },
    {
      test: {
        file: CACHES,
        name: 'a command that its client has stopped waiting for recalls what was granted to the same client since',
      },
    },
  ),
  replica(
    'recall-renounced',
    'a client whose command has an unknown outcome goes on in the same session',
    {
      file: 'client/command-session.ts',
      find: "if (!(error instanceof ServiceError) || error.remedy !== 'give-up') options.unknown?.();",
      replace: '',
    },
    {
      test: {
        file: REMEMBERING,
        name: 'a client whose command has an unknown outcome uses nothing any more that its session was granted',
      },
    },
  ),
  replica(
    'command-unlimited',
    'commands without a time limit use the numbers of all others',
    {
      file: 'client/cluster-client.ts',
      find: 'options.timeoutMs === Number.POSITIVE_INFINITY ? this.#unlimited : this.#commands',
      replace: 'this.#commands',
    },
    {
      test: {
        file: 'test/client/cluster-client.test.ts',
        name: 'while a command without a time limit has no answer, others are executed',
      },
    },
  ),
  replica(
    'window-leaked',
    'a request that has stopped waiting gets a number all the same, and keeps it',
    {
      file: 'client/request-window.ts',
      find: 'else this.#waiting.splice(at, 1);',
      replace: '',
    },
    {
      test: {
        file: 'test/client/request-window.test.ts',
        name: 'a number that is not free in time is waited for no longer',
      },
    },
  ),
  replica(
    'fence-older-member',
    'a session is renewed while a member that obeys no fence may become the primary',
    {
      file: 'server/catalog/client-caches.ts',
      find: 'if (this.#closed || !fenced) return',
      replace: 'if (this.#closed) return',
    },
    { test: { file: CACHES, name: 'a session is not renewed where fences are not obeyed any more' } },
  ),
  replica(
    'fence-unchecked',
    'a fenced command is executed whatever became of its delegation',
    {
      file: 'server/catalog/catalog-service.ts',
      find: 'refusal: ({ cache }) => this.#parts.recaller.refusal(cache),',
      replace: '',
    },
    {
      test: {
        file: FENCES,
        name: 'a fenced command is executed while its delegation is held, and has no effect after that',
      },
    },
  ),
  replica(
    'fence-early',
    'a fence is checked before a command waits for recalls, and not after',
    {
      file: 'server/catalog/catalog-service.ts',
      find: 'refusal: ({ cache }) => this.#parts.recaller.refusal(cache),',
      replace:
        'refusal: (request) => batch.some((one) => one.request === request && one.blocked.length > 0) ? null : this.#parts.recaller.refusal(request.cache),',
    },
    { test: { file: FENCES, name: 'a fence that is lost while the command waits for a recall is lost' } },
  ),
  replica(
    'fence-generation',
    'a fence stands by whatever delegation of the directory the session has',
    {
      file: 'server/catalog/client-caches.ts',
      find: 'held.generation === generation &&',
      replace: '',
    },
    { test: { file: CACHES, name: 'a fence stands while the very delegation is held that it names' } },
  ),
  replica(
    'own-recalled',
    "a directory that was called back during a client's own change is believed after it",
    {
      file: 'client/memory.ts',
      find: '    this.#before.delete(inode);\n    this.#forgetDirectory(inode);',
      replace: '    this.#forgetDirectory(inode);',
    },
    { test: { file: CACHES, name: 'nobody believes what is not so (SEED=10)' } },
  ),
  replica(
    'own-ended',
    "a directory is believed beyond the session in which a client's own change of it was begun",
    {
      file: 'client/memory.ts',
      find: '    this.#before.clear();\n',
      replace: '',
    },
    { test: { file: MEMORY, name: 'nothing outlives the session' } },
  ),
  replica(
    'own-crossed',
    'of two changes of one name at a time the one that was answered last counts',
    {
      file: 'client/memory.ts',
      find: 'return this.#changing.get(key) === 1 && (this.#stamps.get(key) ?? 0) <= since;',
      replace: 'return this.#changing.get(key) === 1;',
    },
    { test: { file: MEMORY, name: 'of two changes at a time nobody knows which was the last one' } },
  ),
  replica(
    'own-ungranted',
    'what a client changes in a directory of which nothing is granted to it is believed',
    {
      file: 'client/memory.ts',
      find: 'if (!isBelieved || !this.#isFreshDirectory(parent, since)) return false;',
      replace: 'if (!this.#isFreshDirectory(parent, since)) return false;',
    },
    { test: { file: MEMORY, name: 'of a directory of which nothing is granted nothing is learned' } },
  ),
  replica(
    '63i',
    'a mount gives a directory back before the cluster has what was made in it',
    {
      file: 'fuse/newborn-files.ts',
      find: 'await this.#comeAll(this.#unbornIn(called));',
      replace: 'void this.#comeAll(this.#unbornIn(called));',
    },
    { test: { file: BIRTHS, name: 'before a directory is given back all of it is at the cluster' } },
  ),
  replica(
    '63j',
    'a birth of which nobody knows what became of it is taken for refused',
    {
      file: 'fuse/unborn-file.ts',
      find: "this.#parts.doubted(this, error);\n      this.#attempted = 'birth';",
      replace: 'throw error;',
    },
    { test: { file: BIRTHS, name: 'made nevertheless (lost-after)' } },
  ),
  replica(
    'copy-lent',
    'what is copied to a new file is memory that readers of the source give back',
    {
      file: 'fuse/open-files.ts',
      find: 'const bytes = Uint8Array.from(read);',
      replace: 'const bytes = read;',
    },
    {
      test: {
        file: 'test/fuse/births.test.ts',
        name: 'what is copied to a new file is no part of what others read',
      },
    },
  ),
  replica(
    'before-number',
    'a primary takes the number before that of a change for the version which it has changed',
    {
      file: 'server/file/file-primary.ts',
      find: 'before = this.#contents;',
      replace: 'before = { epoch: this.epoch.counter, seq: this.#driver.orderedSeq - 1 };',
    },
    {
      test: {
        file: 'test/server/file-primary.test.ts',
        name: 'each change tells which version it has changed, whatever else was ordered meanwhile',
      },
    },
  ),
  replica(
    'lineage-gap',
    'a mount takes its own change for the next one of what it has',
    {
      file: 'fuse/lineage.ts',
      find: 'this.#ahead.set(keyOf(before), contents);',
      replace: 'this.#ahead.set(keyOf(this.#version), contents);',
    },
    { test: { file: OWN_CONTENTS, name: 'a change made elsewhere between two of ours is read' } },
  ),
  replica(
    'written-told',
    'what was written on a mount stays when it hears of a change made elsewhere',
    {
      file: 'fuse/open-file.ts',
      find: 'if (this.#lineage.told(contents)) this.#pages.clear();',
      replace: 'this.#lineage.told(contents);',
    },
    {
      test: {
        file: OWN_CONTENTS,
        name: 'what others change is seen when the time for which it is believed is over',
      },
    },
  ),
  replica(
    'written-old',
    'what was written on a mount is believed for ever',
    {
      file: 'fuse/open-file.ts',
      find: 'performance.now() - this.#heardMs < believedMs',
      replace: 'believedMs > 0',
    },
    {
      test: {
        file: OWN_CONTENTS,
        name: 'what others change is seen when the time for which it is believed is over',
      },
    },
  ),
  replica(
    'written-heard',
    'attributes that were heard before make what was written on a mount newer',
    {
      file: 'fuse/open-file.ts',
      find: 'if (attributes !== this.#heard) this.#heardMs',
      replace: 'this.#heardMs',
    },
    { test: { file: OWN_CONTENTS, name: 'that nobody has changed it makes it believed for longer' } },
  ),
  replica(
    'written-failed',
    'what failed to be written is read from the mount',
    {
      file: 'fuse/open-file.ts',
      find: '        pages.clear();',
      replace: '',
    },
    { test: { file: OWN_CONTENTS, name: 'what failed to be written is not read' } },
  ),
  replica(
    'written-cut',
    'what was cut off a file is read from the mount',
    {
      file: 'fuse/open-file.ts',
      find: 'if (sizeBytes < endBytes) this.#pages.drop(sizeBytes);',
      replace: '',
    },
    {
      test: {
        file: OWN_CONTENTS,
        name: 'a file that is made longer has zeros there, and one that is cut nothing',
      },
    },
  ),
  replica(
    'written-reopened',
    'what was written on a mount is read there when the file is opened with other contents',
    {
      file: 'fuse/written-pages.ts',
      find: 'if (kept?.isOf(contents) === true) return kept;',
      replace: 'if (kept !== undefined) return kept;',
    },
    {
      test: {
        file: OWN_CONTENTS,
        name: 'what others have changed is read as it is, by whoever opens the file then',
      },
    },
  ),
  replica(
    'written-gap',
    'a page of which the beginning is not known is read from the mount',
    {
      file: 'fuse/written-pages.ts',
      find: 'if (from > (known?.endBytes ?? 0)) {',
      replace: 'if (from < 0) {',
    },
    {
      test: {
        file: 'test/fuse/written-pages.test.ts',
        name: 'nothing is read that was not written (seed 1)',
      },
    },
  ),
  replica(
    '63k',
    'a client that bears a file still remembers that its name is free',
    {
      file: 'client/remembering-client.ts',
      find: 'const change = { names, inodes: births.map(({ inode }) => inode) };',
      replace: 'const change = { names: [], inodes: births.map(({ inode }) => inode) };',
    },
    { test: { file: REMEMBERING, name: 'a name that was free is no more once it was borne' } },
  ),
  replica(
    '63l',
    'what is called back from a client that remembers stays delegated to it',
    {
      file: 'client/remembering-client.ts',
      find: 'await Promise.all([this.#forgotten(inodes), this.#sharer?.recalled(inodes)]);',
      replace: 'await this.#forgotten(inodes);',
    },
    {
      test: {
        file: REMEMBERING,
        name: 'what is called back is delegated no more, and is told to whom it was',
      },
    },
  ),
  replica(
    '63m',
    'a mount changes what its own kernel still believes, and is not called back for',
    {
      file: 'client/remembering-client.ts',
      find: 'await this.#changing(forgets);\n      const { client',
      replace: 'const { client',
    },
    {
      test: { file: REMEMBERING, name: 'nobody here believes any more what this client asks to be changed' },
    },
  ),
  replica(
    'listing-past',
    'a list that was asked for before a change of names is taken for one of after it',
    {
      file: 'fuse/known-listings.ts',
      find: 'isPast: this.#changing.has(directory)',
      replace: 'isPast: false',
    },
    { test: { file: LISTINGS, name: 'what is told is what is there (SEED=1)' } },
  ),
  replica(
    'listing-two',
    'of two changes of a name at a time the one that is answered last is taken for the last',
    {
      file: 'fuse/known-listings.ts',
      find: 'if (this.#changing.has(directory)) this.forget(directory);',
      replace: '',
    },
    {
      test: {
        file: LISTINGS,
        name: 'of two changes at a time nobody knows here which one the cluster has made first',
      },
    },
  ),
  replica(
    'listing-failed',
    'a change of names that failed is taken for one that was not made',
    {
      file: 'fuse/known-listings.ts',
      find: 'if (known === undefined || changes === null) {',
      replace: 'if (changes === null) return;\n    if (known === undefined) {',
    },
    { test: { file: LISTINGS, name: 'what is told is what is there (SEED=1)' } },
  ),
  replica(
    'listing-held',
    'a directory that was given back, and had again, is listed as it was before',
    {
      file: 'fuse/file-system.ts',
      find: 'cache.held(directory);\n      this.#names.listings.forget(directory);',
      replace: 'cache.held(directory);',
    },
    {
      test: {
        file: BIRTHS,
        name: 'a directory that was given back, and had again, is listed as others have left it',
      },
    },
  ),
  replica(
    'listing-linked',
    'of two names of one file the one that is renamed to the other is listed as gone',
    {
      file: 'fuse/file-system.ts',
      find: "if (now === undefined || !isOther || mode === 'exchange')",
      replace: "if (now === undefined || mode === 'exchange')",
    },
    {
      test: {
        file: BIRTHS,
        name: 'a directory that nobody else changes is listed again from memory, with what is changed in it here',
      },
    },
  ),
  replica(
    'listing-refused',
    'a new file that the cluster has refused is listed',
    {
      file: 'fuse/file-system.ts',
      find: 'if (atNs === null) this.#names.listings.forget(directory);',
      replace: '',
    },
    {
      test: {
        file: BIRTHS,
        name: 'a directory that nobody else changes is listed again from memory, with what is changed in it here',
      },
    },
  ),
  replica(
    'closed-lost',
    'what a file was to become is told of one whose writes have failed',
    {
      file: 'fuse/open-file.ts',
      find: 'if (this.writes.dirty || this.writes.errorCount > 0) return null;',
      replace: '',
    },
    {
      test: {
        file: LIVE_FILES,
        name: 'what was written and closed here is told from memory, for as long as what was heard before',
      },
    },
  ),
  replica(
    'closed-refused',
    'attributes are told of a new file that the cluster has refused',
    {
      file: 'fuse/open-file.ts',
      find: 'if (state.contents.epoch === 0) return null;',
      replace: '',
    },
    { test: { file: BIRTHS, name: 'a refusal is told by fsync and by close, and the name is free' } },
  ),
  replica(
    'changed-past',
    'of two changes of attributes the one that is answered last is taken for the last',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'const isKnown = !isPast && !attributes.live;',
      replace: 'const isKnown = !attributes.live;',
    },
    {
      test: {
        file: LIVE_FILES,
        name: 'attributes that were changed here are told from memory, and never those of before',
      },
    },
  ),
  replica(
    'changed-live',
    'what the catalog knows of a live file is believed after a change of its attributes',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'const isKnown = !isPast && !attributes.live;',
      replace: 'const isKnown = !isPast;',
    },
    {
      test: {
        file: LIVE_FILES,
        name: 'attributes that were changed here are told from memory, and never those of before',
      },
    },
  ),
  replica(
    'renamed-linked',
    'the name of a file that has two is free, for whoever makes names, once it is renamed to the other',
    {
      file: 'fuse/birth-backend.ts',
      find: "if (typeof file === 'number' && !files.isLinked(file)) files.changed(from, 'free');",
      replace: "if (typeof file === 'number') files.changed(from, 'free');",
    },
    {
      test: {
        file: OWN_NAMES,
        name: 'a name of a file that has another one here is not taken for free when it is renamed to that',
      },
    },
  ),
  replica(
    'renamed-past',
    'a new name is believed that was changed once more before it was heard of',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'if (!isKnown || isPast || this.#ageMaxMs === 0) return;',
      replace: 'if (!isKnown || this.#ageMaxMs === 0) return;',
    },
    {
      test: {
        file: CACHE,
        name: 'what got another name is what it was, for as long as it would have been, but for the time of its change',
      },
    },
  ),
  replica(
    'renamed-unchanged',
    'what has another name has changed no later than before',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'const changedNs = laterNs(known.attributes.changedNs, atNs);',
      replace: 'const { changedNs } = known.attributes;',
    },
    { test: { file: OWN_NAMES, name: 'what is told is what is there (SEED=1)' } },
  ),
  replica(
    'renamed-directory',
    'a directory that is moved is counted where it was',
    {
      file: 'fuse/file-system.ts',
      find: "const isCounted = kind === undefined || kind === 'directory' || mode === 'exchange';",
      replace: "const isCounted = mode === 'exchange';",
    },
    {
      test: {
        file: OWN_NAMES,
        name: 'a directory that is moved is counted by the one that it comes to, and by the one that it leaves no more',
      },
    },
  ),
  replica(
    'counted-twice',
    'a directory counts one in it that was in what was heard meanwhile',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'if (atNs === null || (directories !== 0 && known.answeredMs >= since)) {',
      replace: 'if (atNs === null) {',
    },
    {
      test: {
        file: CACHE,
        name: 'a directory counts those that are made and removed in it, unless it was heard of meanwhile',
      },
    },
  ),
  replica(
    'removed-counted',
    'a directory counts those that were removed from it',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'this.#namesChanged(parent, atNs, -1, since);',
      replace: 'this.#namesChanged(parent, atNs, 0, since);',
    },
    { test: { file: OWN_NAMES, name: 'what is told is what is there (SEED=1)' } },
  ),
  replica(
    'away-patient',
    'each of many questions finds out anew that the catalog is out of reach',
    {
      file: 'fuse/catalog-reach.ts',
      find: 'await ask(this.#isAway ? { timeoutMs: SHORT_MS } : {});',
      replace: 'await ask({});',
    },
    {
      test: {
        file: REACH,
        name: 'questions take as long as they usually may until one was asked in vain, then no longer than a moment',
      },
    },
  ),
  replica(
    'away-refused',
    'the catalog is taken for out of reach when it refuses what it is asked',
    {
      file: 'fuse/catalog-reach.ts',
      find: "return error instanceof ServiceError && error.remedy === 'retry';",
      replace: 'return error instanceof ServiceError;',
    },
    {
      test: {
        file: REACH,
        name: 'whoever was asked before is believed: the catalog is back with the first answer, also with a refusal',
      },
    },
  ),
  replica(
    'away-old',
    'what was asked long ago in vain says that the catalog is out of reach, which has answered since',
    {
      file: 'fuse/catalog-reach.ts',
      find: 'else if (!this.#isAway && beganMs > this.#answeredMs) this.#began();',
      replace: 'else if (!this.#isAway) this.#began();',
    },
    {
      test: {
        file: REACH,
        name: 'what was asked before somebody was answered says nothing of the time since',
      },
    },
  ),
  replica(
    'away-crowd',
    'each question that is asked in vain has the catalog looked for once more',
    {
      file: 'fuse/catalog-reach.ts',
      find: 'else if (!this.#isAway && beganMs > this.#answeredMs) this.#began();',
      replace: 'else if (beganMs > this.#answeredMs) this.#began();',
    },
    {
      test: {
        file: REACH,
        name: 'questions take as long as they usually may until one was asked in vain, then no longer than a moment',
      },
    },
  ),
  replica(
    'away-endless',
    'a mount that has ended looks for the catalog for ever',
    {
      file: 'fuse/catalog-reach.ts',
      find: 'while (this.#isAway && !this.#isClosed) {',
      replace: 'while (this.#isAway) {',
    },
    { test: { file: REACH, name: 'it is looked for until it is back, or the mount ends' } },
  ),
  replica(
    'away-directories',
    'directories are asked for of a catalog that is out of reach',
    {
      file: 'fuse/held-directories.ts',
      find: ' || this.#backend.isAway?.() === true) return;',
      replace: ') return;',
    },
    {
      test: {
        file: 'test/fuse/newborn-files.test.ts',
        name: 'while the catalog is out of reach no directory is asked for',
      },
    },
  ),
  replica(
    'changed-strict',
    'what a change was answered is believed by an open, where nothing is to be believed',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'if (isKnown && this.#ageMaxMs > 0) this',
      replace: 'if (isKnown) this',
    },
    { test: { file: LIVE_FILES, name: 'where nothing is believed, neither is what a change was answered' } },
  ),
  replica(
    'told-early',
    'what the kernel was told of other contents is taken for over when it has just heard of it',
    {
      file: 'fuse/told-contents.ts',
      find: 'nowMs + this.#believedMs + UPTAKE_MS_MAX,',
      replace: 'nowMs + this.#believedMs,',
    },
    {
      test: {
        file: TOLD,
        name: 'what the kernel believes no more is not outdated; where it believes nothing, nothing is',
      },
    },
  ),
  replica(
    'told-twice',
    'whoever was refused an open, and looked the path up once more, is refused again',
    {
      file: 'fuse/told-contents.ts',
      find: 'if (refused?.path === path && refused.untilMs >= nowMs) return false;',
      replace: '',
    },
    { test: { file: TOLD, name: 'nobody is refused twice in a row, whatever others do meanwhile' } },
  ),
  replica(
    'name-remembered',
    'over the binding a name is opened as the file that is remembered',
    {
      file: 'fuse/names.ts',
      find: 'cache.lookedAt(parent, name) ??',
      replace: 'cache.entry(parent, name) ??',
    },
    {
      test: {
        file: OPEN_NAMES,
        name: 'what another mount has given the name to is opened, and not what is remembered',
      },
    },
  ),
  replica(
    'name-lost',
    'a name that nothing has any more is remembered after an open has heard so',
    {
      file: 'fuse/names.ts',
      find: 'cache.lost(place, cache.inodeOf(parent, name) ?? 0);',
      replace: 'void place;',
    },
    {
      test: {
        file: OPEN_NAMES,
        name: 'where nothing has the name any more, the kernel looks it up once more, and hears so',
      },
    },
  ),
  replica(
    'path-shared',
    'that another file is open by the path is forgotten with the first handle that is closed',
    {
      file: 'fuse/open-paths.ts',
      find: 'if (handles?.size === 0) this.#end(path);',
      replace: 'this.#end(path);',
    },
    {
      test: {
        file: OPEN_PATHS,
        name: 'several files are open by a path until all but one of them are closed',
      },
    },
  ),
  replica(
    'path-below',
    'what is open in a directory keeps its path when that has another name',
    {
      file: 'fuse/open-paths.ts',
      find: 'if (path !== from && !path',
      replace: 'if (path !== from || !path',
    },
    { test: { file: OPEN_PATHS, name: 'what is open moves with its path, and with a directory on the way' } },
  ),
  replica(
    'belief-early',
    'what the kernel was told is over for it when its time is, counted from when it was sent',
    {
      file: 'fuse/kernel/kernel-belief.ts',
      find: 'nowMs + believedMs + UPTAKE_MS_MAX : 0;',
      replace: 'nowMs + believedMs : 0;',
    },
    {
      test: {
        file: BELIEF,
        name: 'what the kernel was told of other contents is dropped before it hears of an open, also where it counts later (listing)',
      },
    },
  ),
  replica(
    'heard-overtaken',
    'an answer that was asked for earlier takes the place of a later one',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'if (mark < (this.#known.get(attributes.inode)?.mark ?? 0)) return;',
      replace: '',
    },
    { test: { file: CACHE, name: 'answers overtake each other: what was asked for later counts' } },
  ),
  replica(
    'heard-age',
    'what was heard is believed for its time from the answer on',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'const heard = { mark, askedMs: mark, answeredMs: performance.now() };\n    bounded(this.#known)',
      replace:
        'const heard = { mark, askedMs: performance.now(), answeredMs: performance.now() };\n    bounded(this.#known)',
    },
    { test: { file: CACHE, name: 'what is heard is as old as its question' } },
  ),
  replica(
    'kept-links',
    'the kernel keeps names of a file that has several',
    {
      file: 'fuse/attribute-cache.ts',
      find: ' && this.#hasOneName(inode)',
      replace: '',
    },
    { test: { file: CACHE, name: 'the kernel keeps no name of a file that has several' } },
  ),
  replica(
    'kept-moved',
    'the kernel opens what was renamed by a name that nobody asks for',
    {
      file: 'fuse/kept-names.ts',
      find: 'if (one !== undefined) this.#keep',
      replace: 'if (one === undefined) this.#keep',
    },
    {
      test: {
        file: CACHE,
        name: 'a name that the kernel keeps moves with what is renamed here, and is over where it is removed',
      },
    },
  ),
  replica(
    'kept-told',
    'a name that is told from memory is opened as what had it, where the kernel is not to keep it',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'if (isKept || isRemembered) this',
      replace: 'if (isKept) this',
    },
    {
      test: {
        file: OPEN_NAMES,
        name: 'a name of several that is told from memory is not opened as the file that had it',
      },
    },
  ),
  replica(
    'kept-second',
    'of two names of an inode that the kernel keeps the later one alone is asked for when it is opened',
    {
      file: 'fuse/kept-names.ts',
      find: 'else if (!all.includes(kept)) all.push(kept);',
      replace: 'else this.#byInode.set(kept.inode, [kept]);',
    },
    {
      test: {
        file: KEPT,
        name: 'an inode has all names that the kernel was told, until the kernel has forgotten each',
      },
    },
  ),
  replica(
    'kept-early',
    'a name is taken for forgotten while the kernel, which has heard of it late, opens by it',
    { file: 'fuse/kept-names.ts', find: 'nowMs + leftMs + UPTAKE_MS_MAX);', replace: 'nowMs + leftMs);' },
    {
      test: {
        file: KEPT,
        name: 'an inode has all names that the kernel was told, until the kernel has forgotten each',
      },
    },
  ),
  replica(
    'kept-past',
    'what a name stood for before is taken for forgotten as soon as the kernel is told otherwise',
    {
      file: 'fuse/kept-names.ts',
      find: 'kept.untilMs = Math.min(kept.untilMs, performance.now() + UPTAKE_MS_MAX);',
      replace: 'kept.untilMs = 0;',
    },
    { test: { file: KEPT, name: 'what the kernel was told of a name before it may be about to open' } },
  ),
  replica(
    'kept-just-asked',
    'what the kernel was told of the name for which it has asked just now counts for an open that came without a look-up',
    {
      file: 'fuse/kept-names.ts',
      find: '(kept.key === key && this.#current.get(key) !== kept)',
      replace: 'kept.key === key',
    },
    { test: { file: KEPT, name: 'what the kernel was told of a name before it may be about to open' } },
  ),
  replica(
    'kept-current',
    'a name that the kernel was not to keep is taken for believed',
    {
      file: 'fuse/kept-names.ts',
      find: 'this.#current.delete(key);\n    kept.believedMs = 0;',
      replace: 'kept.believedMs = 0;',
    },
    { test: { file: KEPT, name: 'what the kernel was told of a name before it may be about to open' } },
  ),
  replica(
    'kept-believed',
    'what the kernel asks for although it believes it is answered from memory',
    { file: 'fuse/names.ts', find: 'isOnceMore || isForced', replace: 'isOnceMore' },
    {
      test: {
        file: OPEN_NAMES,
        name: 'what the kernel looks up although it believes it the cluster is asked for',
      },
    },
  ),
  replica(
    'kept-certain',
    'what was asked for before a directory was held counts as certain',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'return entry !== undefined && this.#isHeld(entry, parent);',
      replace: 'return entry !== undefined && this.isHeld(parent);',
    },
    {
      test: {
        file: CACHE,
        name: 'a name is certain that was asked for since nobody else changes its directory, and for as long as that is so',
      },
    },
  ),
  replica(
    'kept-remembered',
    'what was asked for once counts as asked for when it is told from memory',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'if (attributes !== undefined && entry.isAsked) this',
      replace: 'if (attributes === undefined && entry.isAsked) this',
    },
    {
      test: {
        file: CACHE,
        name: 'what was asked for a moment ago, and is told from memory since, an open has to ask for',
      },
    },
  ),
  replica(
    'looked-twice',
    'one look-up serves all opens of its moment',
    {
      file: 'fuse/attribute-cache.ts',
      find: '{ ...known, answeredMs: Number.NEGATIVE_INFINITY }',
      replace: 'known',
    },
    { test: { file: OPEN_NAMES, name: 'one look-up serves one open: the next one may come without any' } },
  ),
  replica(
    'link-unmeant',
    'a second name is given to the file of before',
    {
      file: 'fuse/file-system.ts',
      find: '    await staleIfGone(this.#inodes.assertMeantToLink(inode, thread));\n',
      replace: '',
    },
    { test: { file: OPEN_NAMES, name: 'a second name is given to what has the first one now' } },
  ),
  replica(
    'open-replaced',
    'whoever comes back to a file that was replaced once more is refused for good',
    {
      file: 'fuse/open-files.ts',
      find: 'if (links > 0 || isOnceMore || this.#orphans',
      replace: 'if (links > 0 || this.#orphans',
    },
    {
      test: {
        file: OPEN_NAMES,
        name: 'whoever comes back to a file that was replaced once more in between opens it without a name',
      },
    },
  ),
  replica(
    'write-appends',
    'a descriptor appends as it was opened, whatever it was told since',
    {
      file: 'fuse/open-files.ts',
      find: 'if (appends ?? opened.appending) await',
      replace: 'if (opened.appending) await',
    },
    { test: { file: OPEN_NAMES, name: 'a descriptor appends as it is at each write, where that is told' } },
  ),
  replica(
    'close-untold',
    'what a close that waits for nothing did not tell nobody hears',
    {
      file: 'fuse/open-files.ts',
      find: 'if (this.#flushBehind) this.#untold ??= opened',
      replace: 'void opened',
    },
    {
      test: {
        file: 'test/fuse/write-errors.test.ts',
        name: 'what a close that waits for nothing did not tell is told by the next fsync of the root, once',
      },
    },
  ),
  replica(
    'refused-other',
    'whoever was refused an open may open the same inode, whatever he has looked up since',
    {
      file: 'fuse/refused-opens.ts',
      find: "return refused.state === 'found' && refused.found === inode;",
      replace: 'return refused.inode === inode || refused.found === inode;',
    },
    {
      test: {
        file: REFUSED,
        name: 'whoever was refused opens what it has looked up since, and only that, and once',
      },
    },
  ),
  replica(
    'refused-on-the-way',
    'whatever a thread that was refused has looked up last it may open',
    {
      file: 'fuse/refused-opens.ts',
      find: 'refused.isBehindLink || refused.keys.has(placeKey(place)) || attributes?.inode === refused.inode;',
      replace: 'attributes !== null;',
    },
    {
      test: {
        file: REFUSED,
        name: 'whoever was refused opens what it has looked up since, and only that, and once',
      },
    },
  ),
  replica(
    'refused-twice',
    'the second look-up of what is another inode than before ends the refusal',
    {
      file: 'fuse/refused-opens.ts',
      find: "refused.state === 'found' && isOther && !refused.isLink",
      replace: "refused.state === 'found' && !refused.isLink",
    },
    {
      test: {
        file: REFUSED,
        name: 'whoever was refused opens what it has looked up since, and only that, and once',
      },
    },
  ),
  replica(
    'refused-unnumbered',
    'of threads without a number one may open what another one was refused',
    {
      file: 'fuse/refused-opens.ts',
      find: 'return thread !== 0 && refused.inode === inode;',
      replace: 'return refused.inode === inode;',
    },
    {
      test: {
        file: REFUSED,
        name: 'what has no name is opened when it comes back without a look-up, but not by those who have no number',
      },
    },
  ),
  replica(
    'refused-directory',
    'whoever came to a directory, and opened nothing, opens what he looks up later',
    {
      file: 'fuse/refused-opens.ts',
      find: "(isMeant && attributes.kind === 'directory' && !refused.isBehindLink)",
      replace: 'false',
    },
    {
      test: {
        file: REFUSED,
        name: 'what is looked up and not opened ends it: whatever the thread opens later is another matter',
      },
    },
  ),
  replica(
    'refused-on',
    'whoever came to what he may not open opens what he looks up later',
    {
      file: 'fuse/refused-opens.ts',
      find: "refused.state === 'found' && isOther && !refused.isLink",
      replace: 'false',
    },
    {
      test: {
        file: REFUSED,
        name: 'what is looked up and not opened ends it: whatever the thread opens later is another matter',
      },
    },
  ),
  replica(
    'refused-late',
    'a refusal of long ago has a file opened that nobody has asked for',
    {
      file: 'fuse/refused-opens.ts',
      find: 'if (refused === undefined || performance.now() - refused.atMs <= STEP_MS_MAX) return refused;',
      replace: 'if (refused !== undefined) return refused;',
    },
    {
      test: {
        file: REFUSED,
        name: 'a look-up that is not answered yet is none, and one that was answered long ago has been made use of',
      },
    },
  ),
  replica(
    'refused-link',
    'the look-up of the name that a link is to get ends the refusal',
    { file: 'fuse/refused-opens.ts', find: 'isOther && !refused.isLink', replace: 'isOther' },
    {
      test: {
        file: REFUSED,
        name: 'behind the name of what is to get a second one that is looked up, and not there',
      },
    },
  ),
  replica(
    'belief-others',
    'what the kernel was told of other contents at the same time is taken for forgotten',
    {
      file: 'fuse/kernel/kernel-belief.ts',
      find: 'const mayDiffer = told.othersUntilMs >= this.#nowMs();',
      replace: 'const mayDiffer = false;',
    },
    {
      test: {
        file: BELIEF,
        name: 'of two answers that are under way at a time the kernel may believe either',
      },
    },
  ),
];
