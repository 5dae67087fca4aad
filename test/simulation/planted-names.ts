/** Known bugs of what a mount and its kernel believe of names and attributes, each noticed by a test of the mount; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const CACHE = 'test/fuse/attribute-cache.test.ts';
const REMOVED = 'test/fuse/removed-directories.test.ts';
const KEPT = 'test/fuse/kept-names.test.ts';
const REFUSED = 'test/fuse/refused-opens.test.ts';
const LISTINGS = 'test/fuse/known-listings.test.ts';

export const PLANTED_NAMES: readonly Planted[] = [
  replica(
    'name-mark',
    'a name that begins with U+FEFF loses these three bytes',
    { file: 'base/utf8.ts', find: 'ignoreBOM: true', replace: 'ignoreBOM: false' },
    {
      test: {
        file: 'test/base/utf8.test.ts',
        name: 'a text has the bytes that it came from, whatever they stand for',
      },
    },
  ),
  replica(
    'argument-bytes',
    'an argument that is not UTF-8 names another file',
    {
      file: 'bin/leasehold.js',
      find: "return !buffer.isUtf8(readFileSync('/proc/self/cmdline'));",
      replace: 'return false;',
    },
    {
      test: {
        file: 'test/client/cli.test.ts',
        name: 'an argument that is not UTF-8 is refused by each program in its own name, and by its own exit code',
      },
    },
  ),
  replica(
    'directory-replaced',
    'an open directory that is replaced by rename is taken for one that was never there',
    {
      file: 'fuse/file-system.ts',
      find: 'this.#removed.add(replaced === target ? targetLast : cache.lastOf(replaced));',
      replace: '',
    },
    {
      test: {
        file: REMOVED,
        name: 'an open directory that is replaced by rename has no links and no entries, and can be changed',
      },
    },
  ),
  replica(
    'directory-not-open',
    'a directory that another mount removed is shown where the kernel would look the name up once more',
    {
      file: 'fuse/file-system.ts',
      find: 'const last = this.#directories.lastOf(inode) ?? this.#removed.likely(inode);',
      replace: 'const last = this.#inodes.cache.lastOf(inode);',
    },
    {
      test: {
        file: REMOVED,
        name: 'a directory that another mount removes and that is not open is looked up once more',
      },
    },
  ),
  replica(
    'kept-longest',
    'a name is taken for forgotten because the kernel was told it once more, for no time',
    {
      file: 'fuse/kept-names.ts',
      find: 'Math.max(kept.untilMs, nowMs + leftMs + UPTAKE_MS_MAX)',
      replace: 'nowMs + leftMs + UPTAKE_MS_MAX',
    },
    {
      test: {
        file: KEPT,
        name: 'a name is one, however often it was told, and is kept for the longest time for which it was',
      },
    },
  ),
  replica(
    'kept-once',
    'a name that was told twice is asked for twice at each open',
    { file: 'fuse/kept-names.ts', find: 'const kept = same ?? {', replace: 'const kept = {' },
    {
      test: {
        file: KEPT,
        name: 'a name is one, however often it was told, and is kept for the longest time for which it was',
      },
    },
  ),
  replica(
    'kept-forgotten',
    'what a name stands for is forgotten together with what it stood for before',
    {
      file: 'fuse/kept-names.ts',
      find: 'if (this.#current.get(key) === kept) this.#current.delete(key);',
      replace: 'this.#current.delete(key);',
    },
    {
      test: {
        file: KEPT,
        name: 'what a name stands for now stays when what it stood for before is forgotten',
      },
    },
  ),
  replica(
    'refused-way',
    'behind a symbolic link on the way whatever is looked up is opened',
    {
      file: 'fuse/refused-opens.ts',
      find: "if (isMeant && attributes.kind === 'symlink') refused",
      replace: "if (attributes.kind === 'symlink') refused",
    },
    { test: { file: REFUSED, name: 'a symbolic link on the way says nothing of what is behind it' } },
  ),
  replica(
    'refused-waiting',
    'whoever waits long for an answer after a refusal is refused once more',
    { file: 'fuse/refused-opens.ts', find: 'refused.atMs = Number.POSITIVE_INFINITY;', replace: '' },
    {
      test: { file: REFUSED, name: 'whoever waits long for an answer is not forgotten for others meanwhile' },
    },
  ),
  replica(
    'refused-asked',
    'whoever was refused by a name for which he had just asked is refused by it for good',
    { file: 'fuse/attribute-cache.ts', find: '...(asked === undefined ? [] : [asked])]', replace: ']' },
    {
      test: {
        file: CACHE,
        name: 'whoever is refused an inode may have come to it by the name for which he has just asked',
      },
    },
  ),
  replica(
    'listing-moved',
    'what is moved to another directory is listed in both',
    { file: 'fuse/known-listings.ts', find: 'if (place.parent === directory) entries', replace: 'entries' },
    { test: { file: LISTINGS, name: 'what is moved to another directory is there, and in that one alone' } },
  ),
  replica(
    'listing-younger',
    'a listing is believed for ever where something is changed now and then',
    {
      file: 'fuse/known-listings.ts',
      find: 'this.#known.set(directory, { ...known, entries });',
      replace: 'this.#known.set(directory, { entries, askedMs: performance.now() });',
    },
    { test: { file: LISTINGS, name: 'what is changed here makes no listing younger' } },
  ),
  replica(
    'listing-unbelieved',
    'a listing is told from memory where nothing is to be believed',
    {
      file: 'fuse/known-listings.ts',
      find: 'if (isPast || this.#ageMaxMs === 0) return;',
      replace: 'if (isPast) return;',
    },
    {
      test: {
        file: LISTINGS,
        name: 'nothing is told that was asked for too long ago, or where nothing is believed',
      },
    },
  ),
  replica(
    'open-doubtful',
    'a file is opened with the size that the catalog has, while it is being written',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'const isAsked = !prefetched && !isDoubtful;',
      replace: 'const isAsked = !prefetched;',
    },
    {
      test: {
        file: CACHE,
        name: 'no open is served by what a listing tells of a file that is being written, nor by a name that was asked for long ago',
      },
    },
  ),
  replica(
    'open-old',
    'a name that was asked for long ago is opened, because its inode was asked for since',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'if (entry?.isAsked !== true || !wasAnswered(entry)) return undefined;',
      replace: 'if (entry?.isAsked !== true) return undefined;',
    },
    {
      test: {
        file: CACHE,
        name: 'no open is served by what a listing tells of a file that is being written, nor by a name that was asked for long ago',
      },
    },
  ),
  replica(
    'closed-doubtful',
    'what the catalog knew of a file that was being written is told when it was closed',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'known === undefined || known.isDoubtful ? null : since(',
      replace: 'known === undefined ? null : since(',
    },
    {
      test: {
        file: CACHE,
        name: 'no open is served by what a listing tells of a file that is being written, nor by a name that was asked for long ago',
      },
    },
  ),
  replica(
    'kept-other',
    'the kernel is told to keep a name for what does not have it any more',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'entry?.inode === inode && entry.isKept && this',
      replace: 'entry?.isKept && this',
    },
    {
      test: {
        file: CACHE,
        name: 'the kernel is told to keep no name for an inode that it does not stand for any more, nor what was answered long before',
      },
    },
  ),
  replica(
    'presented-old',
    'attributes that were put together before newer ones were heard are believed as long as those',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'if (presented !== attributes && known?.attributes === attributes) this',
      replace: 'if (known !== undefined) this',
    },
    { test: { file: CACHE, name: 'what is made of older attributes is not believed as long as newer ones' } },
  ),
  replica(
    'changed-during',
    'what was asked for during a change of attributes is believed after it',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'this.drop(attributes.inode);\n    // Of a live',
      replace: '// Of a live',
    },
    {
      test: {
        file: CACHE,
        name: 'what was asked for during a change is not believed after it, of a file that is being written neither',
      },
    },
  ),
  replica(
    'directory-back',
    'a late answer sets the times of a directory back',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'const times = isLater(atNs, changedNs) ? { modifiedNs: atNs, changedNs: atNs } : {};',
      replace: 'const times = { modifiedNs: atNs, changedNs: atNs };',
    },
    { test: { file: CACHE, name: 'a directory’s times do not go back, whatever answers come late' } },
  ),
  replica(
    'directory-same',
    'a directory has the times of before after something was removed from it',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'const nextNs = BigInt(known.attributes.changedNs) + 1n;',
      replace: 'const nextNs = BigInt(known.attributes.changedNs);',
    },
    { test: { file: CACHE, name: 'a directory’s times do not go back, whatever answers come late' } },
  ),
  replica(
    'lost-again',
    'a name that nothing has any more is told again when its inode is heard of by another one',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'this.#entries.delete(keyOf(parent, name));\n    this.drop(inode);\n  }\n\n  /** The name, and with',
      replace: 'this.drop(inode);\n  }\n\n  /** The name, and with',
    },
    { test: { file: CACHE, name: 'a name that was lost is not told again because its inode is heard of' } },
  ),
  replica(
    'name-before',
    'what was asked for before a name was changed is believed',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'this.#entries.delete(key);\n    this.#noteChange(key);\n    this.drop(parent);',
      replace: 'this.#entries.delete(key);\n    this.drop(parent);',
    },
    {
      test: {
        file: CACHE,
        name: 'what was asked for before a name was changed, or before nobody knows what was, is not believed',
      },
    },
  ),
  replica(
    'rename-before',
    'what was asked for before something unknown was renamed is believed',
    {
      file: 'fuse/attribute-cache.ts',
      find: '  forgetAsked(): void {\n    this.#forgotten = this.#tick();',
      replace: '  forgetAsked(): void {\n    void this.#forgotten;',
    },
    {
      test: {
        file: CACHE,
        name: 'what was asked for before a name was changed, or before nobody knows what was, is not believed',
      },
    },
  ),
  replica(
    'forgotten-back',
    'many writes bring back what was asked for before a change of names',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'this.#forgotten = Math.max(this.#forgotten, mark);',
      replace: 'this.#forgotten = mark;',
    },
    {
      test: {
        file: CACHE,
        name: 'however many files are written, what was asked for before a change of names is not believed',
      },
    },
  ),
  replica(
    'xattrs-old',
    'that a file has no extended attributes is believed for ever',
    {
      file: 'fuse/attribute-cache.ts',
      find: 'known?.attributes.xattrs === 0 && !this.#isOld(known, ageMaxMs)',
      replace: 'known?.attributes.xattrs === 0',
    },
    {
      test: {
        file: CACHE,
        name: 'that there are no extended attributes is believed for its time, and no longer',
      },
    },
  ),
];
