/** Known bugs of what a mount makes and removes before the cluster hears of it, each noticed by a test of the mount; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const NEWBORN = 'test/fuse/newborn-files.test.ts';
const BIRTHS = 'test/fuse/births.test.ts';
const UNBORN = 'test/fuse/unborn-file.test.ts';
const REMOVALS = 'test/fuse/removals.test.ts';

export const PLANTED_NEWBORNS: readonly Planted[] = [
  replica(
    'newborn-mask',
    'a new file has rights that its maker’s mask takes away',
    {
      file: 'fuse/newborn-files.ts',
      find: 'mode: mode & ~umask,\n        links',
      replace: 'mode,\n        links',
    },
    {
      test: {
        file: NEWBORN,
        name: 'a new file has the mode that its maker’s mask leaves, and its directory’s group where that is to be so',
      },
    },
  ),
  replica(
    'newborn-group',
    'a new file has its maker’s group where it is to have its directory’s',
    {
      file: 'fuse/newborn-files.ts',
      find: 'gid: inheritsGroup ? directory.attributes.gid : gid',
      replace: 'gid',
    },
    {
      test: {
        file: NEWBORN,
        name: 'a new file has the mode that its maker’s mask leaves, and its directory’s group where that is to be so',
      },
    },
  ),
  replica(
    'newborn-inherits',
    'a file is borne without what it inherits from its directory',
    { file: 'fuse/newborn-files.ts', find: '!isPlain || this.#directories', replace: 'this.#directories' },
    {
      test: {
        file: NEWBORN,
        name: 'where a directory has attributes that its files inherit, and in volumes whose files cannot be borne, they are made at the cluster',
      },
    },
  ),
  replica(
    'newborn-policy',
    'files are borne in a volume whose files are sealed when they are closed',
    {
      file: 'fuse/newborn-files.ts',
      find: "this.#isPossible = policy === 'quorum';",
      replace: 'this.#isPossible = true;',
    },
    {
      test: {
        file: NEWBORN,
        name: 'where a directory has attributes that its files inherit, and in volumes whose files cannot be borne, they are made at the cluster',
      },
    },
  ),
  replica(
    'newborn-times',
    'a directory keeps the times that it had before new files came to it',
    {
      file: 'fuse/newborn-files.ts',
      find: 'if (!isNamed) this.named(parent, namedNs);',
      replace: '',
    },
    {
      test: {
        file: NEWBORN,
        name: 'the times of a directory are told as others find them, once what was made or removed in it is at the cluster',
      },
    },
  ),
  replica(
    'newborn-twice',
    'what arrives while its directory is listed is listed twice',
    { file: 'fuse/newborn-files.ts', find: 'isOfPage(name) && !listed.has(name)', replace: 'isOfPage(name)' },
    {
      test: {
        file: NEWBORN,
        name: 'a page of a directory has the new files that belong to it, each once, and those of no other directory',
      },
    },
  ),
  replica(
    'newborn-page',
    'a new file is listed on each page of its directory',
    {
      file: 'fuse/newborn-files.ts',
      find: '(last === undefined || namesCompare(name, last) < 0)',
      replace: 'true',
    },
    {
      test: {
        file: NEWBORN,
        name: 'a page of a directory has the new files that belong to it, each once, and those of no other directory',
      },
    },
  ),
  replica(
    'newborn-elsewhere',
    'new files are listed in each directory',
    {
      file: 'fuse/newborn-files.ts',
      find: 'this.#unbornIn(new Set([directory])).filter(',
      replace: '[...this.#unborn.values()].filter(',
    },
    {
      test: {
        file: NEWBORN,
        name: 'a page of a directory has the new files that belong to it, each once, and those of no other directory',
      },
    },
  ),
  replica(
    'newborn-aged',
    'of new files that stay open others see the first alone',
    {
      file: 'fuse/newborn-files.ts',
      find: 'if (leftMs > 0) {\n        this.#timer = setTimeout(() => this.#age(), leftMs);\n',
      replace: 'if (leftMs > 0) {\n',
    },
    {
      test: {
        file: NEWBORN,
        name: 'each file that stays open is there for others a moment after it was made',
      },
    },
  ),
  replica(
    'newborn-ended',
    'new files stay here when others may take their names',
    { file: 'fuse/newborn-files.ts', find: 'void this.#comeAll(this.#unborn.values());', replace: '' },
    {
      test: {
        file: NEWBORN,
        name: 'when delegations are over, and when the mount ends, new files go to the cluster',
      },
    },
  ),
  replica(
    'newborn-stopped',
    'what is new is lost where a mount ends in good order',
    {
      file: 'fuse/newborn-files.ts',
      find: 'Promise.all([this.#comeAll(this.#unborn.values()), this.#removals.stop()])',
      replace: 'this.#removals.stop()',
    },
    {
      test: {
        file: NEWBORN,
        name: 'when delegations are over, and when the mount ends, new files go to the cluster',
      },
    },
  ),
  replica(
    'newborn-count',
    'there is no bound for files that the cluster does not know of',
    { file: 'fuse/newborn-files.ts', find: 'this.#unborn.size >= UNBORN_COUNT_MAX || this', replace: 'this' },
    {
      test: {
        file: NEWBORN,
        name: 'who makes more files than are kept here waits until there are fewer, unless he makes them at the cluster',
      },
    },
  ),
  replica(
    'newborn-bytes',
    'there is no bound for contents that the cluster does not know of',
    { file: 'fuse/newborn-files.ts', find: ' || this.#keptBytes > UNBORN_BYTES_MAX', replace: '' },
    {
      test: {
        file: NEWBORN,
        name: 'who makes more files than are kept here waits until there are fewer, unless he makes them at the cluster',
      },
    },
  ),
  replica(
    'newborn-believed',
    'what a directory had before the session was over is believed while it is had again',
    { file: 'fuse/newborn-files.ts', find: 'this.#directories.endAll();\n', replace: '' },
    {
      test: {
        file: NEWBORN,
        name: 'what a directory had before it was called back, or the session was over, is not believed when it is had again',
      },
    },
  ),
  replica(
    'newborn-wanted',
    'a directory that somebody else wants is asked for at once, and called back from him',
    {
      file: 'fuse/newborn-files.ts',
      find: 'for (const directory of directories) this.#directories.recalled(directory);',
      replace: 'for (const directory of directories) this.#directories.end(directory);',
    },
    { test: { file: NEWBORN, name: 'a directory that somebody else wanted is left to him for a while' } },
  ),
  replica(
    'newborn-heard',
    'an answer of before a name was given away says that it is free',
    {
      file: 'fuse/delegated-names.ts',
      find: 'if (changes === this.changes) this',
      replace: 'if (changes >= 0) this',
    },
    {
      test: {
        file: NEWBORN,
        name: 'what was asked for before a name was given away is not known of it afterwards',
      },
    },
  ),
  replica(
    'newborn-restored',
    'what was made in a directory before its times were set makes them newer afterwards',
    { file: 'fuse/newborn-files.ts', find: 'await this.comeFrom(directory);\n    try', replace: 'try' },
    {
      test: {
        file: NEWBORN,
        name: 'a change of a directory counts for what is made in it meanwhile and afterwards, and what was made before is there before',
      },
    },
  ),
  replica(
    'newborn-meanwhile',
    'a file that is made while its directory changes is what it would have been before',
    {
      file: 'fuse/newborn-files.ts',
      find: 'this.#directories.end(directory);\n    await this.comeFrom(directory);',
      replace: 'await this.comeFrom(directory);',
    },
    {
      test: {
        file: NEWBORN,
        name: 'a change of a directory counts for what is made in it meanwhile and afterwards, and what was made before is there before',
      },
    },
  ),
  replica(
    'removal-back',
    'a file that was removed is there again when the session is over before the cluster has heard of it',
    {
      file: 'fuse/newborn-files.ts',
      find: 'if (this.#removals.isAt(place)) throw notThere(name);',
      replace: '',
    },
    {
      test: {
        file: NEWBORN,
        name: 'a name that was removed is gone for all who look, also when delegations are over before the cluster has heard of it',
      },
    },
  ),
  replica(
    'removal-endless',
    'a row of removals has no end, and what is removed by itself is told as gone before it is',
    {
      file: 'fuse/newborn-files.ts',
      find: 'this.#rows.removed(parent);\n      this.changed',
      replace: 'this.changed',
    },
    { test: { file: NEWBORN, name: 'who removes a file long after others removes it for itself' } },
  ),
  replica(
    'removal-on',
    'more and more is told as removed while the cluster answers nothing',
    {
      file: 'fuse/removals.ts',
      find: 'performance.now() - oldest.sinceMs > SLOW_MS',
      replace: 'performance.now() < 0',
    },
    {
      test: {
        file: NEWBORN,
        name: 'nothing more is told as removed while the cluster has not answered for long',
      },
    },
  ),
  replica(
    'removal-once',
    'a name that was removed is removed once more, and that is told as done',
    {
      file: 'fuse/newborn-files.ts',
      find: "this.changed(place, 'free');\n      const atNs",
      replace: 'const atNs',
    },
    { test: { file: NEWBORN, name: 'what was removed once cannot be removed again' } },
  ),
  replica(
    'removal-sticky',
    'whoever may not remove a file, as the directory’s sticky bit says, is told that it is gone',
    { file: 'fuse/newborn-files.ts', find: '!isPlain || this.#rows', replace: 'this.#rows' },
    {
      test: {
        file: NEWBORN,
        name: 'in a directory with the sticky bit the cluster says who may remove what',
      },
    },
  ),
  replica(
    'removal-not-empty',
    'a directory is removed before what was removed from it is gone, and is not empty then',
    {
      file: 'fuse/newborn-files.ts',
      find: 'await (directories === undefined ? this.#removals.gone() : this',
      replace: 'await (directories === undefined ? Promise.resolve() : this',
    },
    {
      test: {
        file: NEWBORN,
        name: 'whatever comes behind removals is done when they are: what the file is asked for, what needs a quota, and the removal of the directory',
      },
    },
  ),
  replica(
    'removal-room',
    'what has no quota is refused although what was removed before leaves room for it',
    {
      file: 'fuse/newborn-files.ts',
      find: 'return this.#removals.withQuota(change);',
      replace: 'return change();',
    },
    {
      test: {
        file: NEWBORN,
        name: 'whatever comes behind removals is done when they are: what the file is asked for, what needs a quota, and the removal of the directory',
      },
    },
  ),
  replica(
    'removal-others',
    'fsync of a directory tells what was not removed from another one, and that one’s does not',
    {
      file: 'fuse/late-errors.ts',
      find: '    if (directory === null) return',
      replace: '    return',
    },
    {
      test: {
        file: NEWBORN,
        name: 'fsync of a directory tells what was not removed from it, and from no other one',
      },
    },
  ),
  replica(
    'removal-unheard',
    'fsync of a directory does not tell what was not removed from it',
    {
      file: 'fuse/late-errors.ts',
      find: 'if (latest === undefined) return null;',
      replace: 'if (latest === undefined || directory !== null) return null;',
    },
    {
      test: {
        file: NEWBORN,
        name: 'fsync of a directory tells what was not removed from it, and from no other one',
      },
    },
  ),
  replica(
    'removal-told',
    'what failed in several directories each sync of all tells, one after the other',
    {
      file: 'fuse/late-errors.ts',
      find: 'for (const errors of since) errors.isReported = true;',
      replace: 'latest.isReported = true;',
    },
    {
      test: {
        file: REMOVALS,
        name: 'what failed in several directories a sync of all reports, and that of one of them its own',
      },
    },
  ),
  replica(
    'removal-user',
    'what one user has removed goes to the trash as removed by another',
    {
      file: 'fuse/removals.ts',
      find: 'first.uid === pending.uid &&',
      replace: '',
    },
    {
      test: {
        file: REMOVALS,
        name: 'a request has names of no more directories than a server takes, of one user and one session',
      },
    },
  ),
  replica(
    'removal-directories',
    'a request has names of more directories than a server takes',
    {
      file: 'fuse/removals.ts',
      find: '(directories.size < REMOVAL_LIMITS.directories || directories.has(pending.parent))',
      replace: 'true',
    },
    {
      test: {
        file: REMOVALS,
        name: 'a request has names of no more directories than a server takes, of one user and one session',
      },
    },
  ),
  replica(
    'removal-retried',
    'what fails while removals are under way is tried once more, whatever became of it',
    { file: 'fuse/removals.ts', find: 'if (!isOverQuota(error)) throw error;', replace: '' },
    {
      test: {
        file: REMOVALS,
        name: 'what fails while removals are under way, and not for want of a quota, is not tried once more',
      },
    },
  ),
  replica(
    'unborn-shared',
    'what was read of a new file changes when it is written next',
    {
      file: 'fuse/unborn-file.ts',
      find: 'Buffer.from(this.#bytes.subarray(offset, Math.min(offset + length, this.#sizeBytes)))',
      replace: 'this.#bytes.subarray(offset, Math.min(offset + length, this.#sizeBytes))',
    },
    {
      test: {
        file: UNBORN,
        name: 'it has the bytes that were written to it, and is borne with them (SEED=1)',
      },
    },
  ),
  replica(
    'unborn-cut',
    'what was cut off a new file is there again when it grows',
    {
      file: 'fuse/unborn-file.ts',
      find: 'this.#bytes.fill(0, Math.min(sizeBytes, this.#sizeBytes), this.#sizeBytes);',
      replace: '',
    },
    {
      test: {
        file: UNBORN,
        name: 'it has the bytes that were written to it, and is borne with them (SEED=1)',
      },
    },
  ),
  replica(
    'unborn-grown',
    'a new file that grows without being written is borne shorter than it is',
    { file: 'fuse/unborn-file.ts', find: 'this.#reserve(sizeBytes);\n        this', replace: 'this' },
    {
      test: {
        file: UNBORN,
        name: 'it has the bytes that were written to it, and is borne with them (SEED=1)',
      },
    },
  ),
  replica(
    'unborn-shorter',
    'a new file ends where it was written last',
    {
      file: 'fuse/unborn-file.ts',
      find: 'this.#sizeBytes = Math.max(this.#sizeBytes, at);',
      replace: 'this.#sizeBytes = at;',
    },
    {
      test: {
        file: UNBORN,
        name: 'it has the bytes that were written to it, and is borne with them (SEED=1)',
      },
    },
  ),
  replica(
    'unborn-lost',
    'a new file loses what it had when it needs more room',
    { file: 'fuse/unborn-file.ts', find: 'this.#bytes.copy(larger);', replace: '' },
    {
      test: {
        file: UNBORN,
        name: 'it has the bytes that were written to it, and is borne with them (SEED=1)',
      },
    },
  ),
  replica(
    'unborn-appended',
    'what is appended to a new file stays here however long it is, and is refused at the end',
    {
      file: 'fuse/unborn-file.ts',
      find: 'endBytes: this.#sizeBytes + bytes.length }',
      replace: 'endBytes: bytes.length }',
    },
    {
      test: {
        file: UNBORN,
        name: 'what is too large, or is too much together with others, is written at the cluster',
      },
    },
  ),
  replica(
    'unborn-beside',
    'a file that may have been made is borne once more',
    { file: 'fuse/unborn-file.ts', find: "this.#attempted = 'creation';\n", replace: '' },
    {
      test: {
        file: UNBORN,
        name: 'while the cluster is told of it, and where it may know of it, nothing is changed here any more',
      },
    },
  ),
  replica(
    'unborn-repeated',
    'the contents of a file that was borne, of which no answer came, are written once more over what others have written',
    {
      file: 'fuse/unborn-file.ts',
      find: "if (before === 'birth' && !created && !this.isNamed) {",
      replace: 'if (false) {',
    },
    {
      test: {
        file: BIRTHS,
        name: 'what another mount has written since a birth of which no answer came stays',
      },
    },
  ),
  replica(
    'unborn-unexpected',
    'contents are written to a new file whatever other clients have written to it since it was created',
    {
      file: 'fuse/unborn-file.ts',
      find: 'there.write(0, [contents], CREATED)',
      replace: 'there.write(0, [contents])',
    },
    {
      test: {
        file: UNBORN,
        name: 'contents are written to the file as it was created, or not at all (first attempt, written since)',
      },
    },
  ),
  replica(
    'unborn-own',
    'contents that an earlier attempt has stored are taken for those of another client',
    {
      file: 'fuse/unborn-file.ts',
      find: 'if (contentVersionCompare(state.contents, BORNE) === 0) return state;',
      replace: '',
    },
    {
      test: {
        file: UNBORN,
        name: 'contents that are found as those of the first epoch are its own',
      },
    },
  ),
  replica(
    'unborn-final',
    'after another client was found to have the name, a later attempt makes the file',
    {
      file: 'fuse/unborn-file.ts',
      find: 'if (this.#refusal === null && isFinal(error)) this.#refusal = { error };',
      replace: '',
    },
    {
      test: {
        file: UNBORN,
        name: 'where another client has the name nothing is written to its file, and no attempt follows',
      },
    },
  ),
  replica(
    'newborn-refused',
    'a refused new file keeps its name on the mount while it is open',
    {
      file: 'fuse/newborn-files.ts',
      find: 'if (!file.isRefused && !isRefusal(error) && this.isHeld(parent)) return;',
      replace: 'if (!file.isRefused && this.isHeld(parent)) return;',
    },
    {
      test: {
        file: BIRTHS,
        name: 'a name whose file was refused is free again while that file is open',
      },
    },
  ),
  replica(
    'newborn-undelegated',
    'the mount answers for the name of a new file after the delegation, although no attempt to store it has succeeded',
    {
      file: 'fuse/newborn-files.ts',
      find: 'if (!file.isRefused && !isRefusal(error) && this.isHeld(parent)) return;',
      replace: 'if (!file.isRefused && !isRefusal(error)) return;',
    },
    {
      test: {
        file: BIRTHS,
        name: 'while no attempt succeeds and the delegation is over, the cluster says what has the name',
      },
    },
  ),
  replica(
    'named-stale',
    'a file that another client has written is read as it was before on the mount that has created it',
    {
      file: 'fuse/newborn-files.ts',
      find: 'return file?.isThere === true ? undefined : file;',
      replace: 'return file;',
    },
    {
      test: {
        file: BIRTHS,
        name: 'contents of an exclusive create are not written over what another client has written since (paused, then synced there)',
      },
    },
  ),
  replica(
    'unborn-holes',
    'a hole of a whole object in a new file is stored as data',
    { file: 'fuse/unborn-file.ts', find: ' || this.#leavesHole(offset)', replace: '' },
    {
      test: {
        file: UNBORN,
        name: 'what has a hole of a whole object is made at the cluster, which keeps it as one',
      },
    },
  ),
  replica(
    'named-ahead',
    'attributes of a file whose name others see are set in the mount alone',
    { file: 'fuse/unborn-file.ts', find: 'this.isUnborn && !this.isNamed &&', replace: 'this.isUnborn &&' },
    {
      test: {
        file: BIRTHS,
        name: 'a file that was created exclusively gets its contents in one request, whole',
      },
    },
  ),
  replica(
    'newborn-exclusive',
    'an exclusive create is answered before the cluster has the name',
    {
      file: 'fuse/newborn-files.ts',
      find: 'exclusive ? null : this.#make(place, mode, owner)',
      replace: 'this.#make(place, mode, owner)',
    },
    {
      test: {
        file: BIRTHS,
        name: 'an exclusive create is answered when the cluster has the name, also in a directory that is delegated',
      },
    },
  ),
  replica(
    'unborn-late',
    'a change of a new file that is on its way to the cluster stays here',
    {
      file: 'fuse/unborn-file.ts',
      find: 'this.isUnborn && !this.isNamed && (gid',
      replace: '!this.isNamed && (gid',
    },
    {
      test: {
        file: UNBORN,
        name: 'while the cluster is told of it, and where it may know of it, nothing is changed here any more',
      },
    },
  ),
  replica(
    'unborn-unsettled',
    'the catalog is not told of what was written to a new file after it was borne',
    {
      file: 'fuse/unborn-file.ts',
      find: 'this.#isSettled = false;\n    return use(file);',
      replace: 'return use(file);',
    },
    {
      test: { file: UNBORN, name: 'the catalog is told of what it was not borne with, and of nothing else' },
    },
  ),
  replica(
    'unborn-touched',
    'a time that was set on an empty new file is lost where it is made in the ordinary way',
    { file: 'fuse/unborn-file.ts', find: 'this.#isTimed || (contents', replace: '(contents' },
    {
      test: {
        file: UNBORN,
        name: 'where it is made in the ordinary way it has the times that programs have seen',
      },
    },
  ),
  replica(
    'unborn-other',
    'contents that a file of the same number had before are taken for those of the new one',
    { file: 'fuse/unborn-file.ts', find: 'attributes.sizeBytes === 0 && (written', replace: '(written' },
    { test: { file: UNBORN, name: 'nobody takes for its contents what a file of its number had before' } },
  ),
  replica(
    'unborn-locked',
    'locks of a new file are not given back',
    {
      file: 'fuse/unborn-file.ts',
      find: 'if (opening !== null) await (await opening).close();',
      replace: '',
    },
    { test: { file: UNBORN, name: 'once it is there it is a file as any other, also to whoever locks it' } },
  ),
  replica(
    'unborn-privileged',
    'a new file that is given to another user keeps what it may do for its owner',
    {
      file: 'fuse/unborn-file.ts',
      find: '(isOwned ? withoutPrivileges(before.mode) : before.mode)',
      replace: 'before.mode',
    },
    {
      test: {
        file: NEWBORN,
        name: 'who gives a new file to another user takes away what it may do for its owner',
      },
    },
  ),
];
