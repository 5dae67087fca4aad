/** Known bugs of changes of members, and of stores that cannot be believed; see `planted.ts`. */
import { type Mutation, type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const SIDES = 'return joint === undefined ? [members] : [members, joint];';
const BELIEVED =
  "if (trusts.filter(isUnlost).length >= needed || (mayLose && count('suspect') >= needed)) return true;";

const ALL_TO_COME_LOST = 'if (everybody && side === view.joint) return true;';

const KEEPS_USELESS_LEASE: Mutation = {
  file: 'replica/replica.ts',
  find: "if (this.#state.kind === 'backup' && !this.#stopAsked && !this.#votes) this.#onStop();",
  replace: '',
};

const LEASE_OF_BOTH =
  'if (this.#lease.decisions === change.decisions || this.#lease.view < this.#view.number) return false;';

const CATALOG_GROWS =
  'the catalog of a cluster that began with one server is on three once there are three, and on five of five';

export const PLANTED_MEMBERS: readonly Planted[] = [
  replica(
    'catalog-grows',
    'the catalog of a cluster that began with one server stays on that one',
    {
      file: 'server/membership/wanted-members.ts',
      find: 'if (first >= least) return first;',
      replace: 'return first;',
    },
    { test: { file: 'test/membership/steward.test.ts', name: CATALOG_GROWS } },
  ),
  replica(
    'catalog-shrinks',
    'a catalog that has grown shrinks to its first server while another one is away',
    {
      file: 'server/membership/wanted-members.ts',
      find: 'return Math.max(first, now, ...',
      replace: 'return Math.max(first, ...',
    },
    { test: { file: 'test/membership/steward.test.ts', name: CATALOG_GROWS } },
  ),
  replica(
    'catalog-voters',
    'a member of the catalog without a replica of it counts as one that serves',
    {
      file: 'server/http/status-routes.ts',
      find: "state === 'serving' && catalogReplica === undefined",
      replace: "state === 'serving'",
    },
    {
      test: {
        file: 'test/http/status.test.ts',
        name: 'two members of the catalog have no replica of it: down',
      },
    },
  ),
  replica(
    '46a',
    'while members change, a majority of all of them together counts',
    {
      file: 'replica/view.ts',
      find: SIDES,
      replace: 'return [[...new Set([...members, ...(joint ?? [])])]];',
    },
    { directed: 'both majorities', conversation: 'view-guard.txt' },
  ),
  replica(
    '46b',
    'while members change, a majority of the new ones counts',
    { file: 'replica/view.ts', find: SIDES, replace: 'return [joint ?? members];' },
    { directed: 'both majorities, the other way', conversation: 'view-remove.txt' },
  ),
  replica(
    '46c',
    'while members change, a majority of the old ones counts',
    { file: 'replica/view.ts', find: SIDES, replace: 'return [members];' },
    { conversation: 'view-change.txt' },
  ),
  replica(
    '46d',
    'a change ends before the lease was decided by both sets',
    {
      file: 'replica/write-order.ts',
      find: LEASE_OF_BOTH,
      replace: '',
    },
    { directed: 'lease of both', conversation: 'view-change.txt' },
  ),
  replica(
    '46e',
    'a change ends before its beginning is committed',
    {
      file: 'replica/write-order.ts',
      find: 'if (this.#committedSeq < change.seq) return false;\n        // A lease',
      replace: '// A lease',
    },
    { conversation: 'view-remove.txt' },
  ),
  replica(
    '46f',
    'a change begins while another is under way',
    {
      file: 'replica/write-order.ts',
      find: "if (change !== null && change.stage !== 'learning') {",
      replace: 'if (change === undefined) {',
    },
    { conversation: 'view-remove.txt' },
  ),
  replica(
    '46g',
    'who only learns is counted',
    {
      file: 'replica/write-order.ts',
      find: 'const reached = viewReached(this.#countedView, ackedSeq);',
      replace:
        'const reached = [ownSeq, ...[...this.#peers.values()].map((peer) => peer.ackedSeq)].sort((x, y) => y - x)[Math.floor(this.#view.members.length / 2)] ?? 0;',
    },
    { conversation: 'view-learner.txt' },
  ),
  replica(
    '46h',
    'new members vote before they have what is committed',
    {
      file: 'replica/write-order.ts',
      find: 'if (!this.#haveLearned(change.target)) return false;',
      replace: '',
    },
    { conversation: 'view-change.txt' },
  ),
  replica(
    '46i',
    'a candidate is content with the promises of the view that it knows',
    {
      file: 'replica/reset.ts',
      find: 'if (!this.#suffices(this.#viewAt(base), nowMs)) return null;',
      replace: '',
    },
    { conversation: 'view-reset.txt' },
  ),
  replica(
    '46j',
    'the base is on a majority of the view that the candidate began by',
    {
      file: 'replica/reset.ts',
      find: 'return viewHasMajority(this.view, (server) => this.#installed.has(server));',
      replace: 'return viewHasMajority(this.#ownView, (server) => this.#installed.has(server));',
    },
    { conversation: 'view-reset.txt' },
  ),
  replica(
    '46k',
    'a primary that is no member any more goes on',
    {
      file: 'replica/replica.ts',
      find: "if (this.#state.kind === 'active' && order.isOut) {",
      replace: "if (this.#state.kind !== 'active' && order.isOut) {",
    },
    { directed: 'both majorities', conversation: 'view-change.txt' },
  ),
  replica(
    '46l',
    'a server begins an epoch of replicas of which it has none',
    {
      file: 'replica/replica.ts',
      find: 'return !this.#stopAsked && this.#outside === null && this.#votes;',
      replace: 'return !this.#stopAsked;',
    },
    { conversation: 'view-backup.txt' },
    { also: [KEEPS_USELESS_LEASE] },
  ),
  replica('46l2', 'a server keeps the lease of replicas of which it has none', KEEPS_USELESS_LEASE, {
    conversation: 'view-backup.txt',
  }),
  replica(
    '46m',
    'the next primary leaves the change half done',
    {
      file: 'replica/write-order.ts',
      find: 'if (view.joint !== undefined)\n      this.#change =',
      replace: 'if (view.joint === null)\n      this.#change =',
    },
    { directed: 'change that is inherited', conversation: 'view-reset.txt' },
  ),
  replica(
    '46n',
    'a replica goes on by the view it had before the operation that changes it',
    {
      file: 'replica/standing.ts',
      find: 'if (operation.view !== undefined) this.#goBy(operation.view, tells);',
      replace: '',
    },
    { conversation: 'view-backup.txt' },
  ),
  replica(
    '46o',
    'the view is no part of the state that is taken over',
    {
      file: 'replica/backup.ts',
      find: 'standing.storeInstall(install, { seq: position.seq, view, sessions }, true);',
      replace: 'standing.storeInstall(install, { seq: position.seq, view: standing.view, sessions }, true);',
    },
    { conversation: 'view-backup.txt' },
  ),
  replica(
    '46p',
    'nobody waits for who may read and is no member any more',
    {
      file: 'replica/write-order.ts',
      find: 'if (server !== self) atReaders = Math.min(',
      replace: 'if (this.#peers.has(server)) atReaders = Math.min(',
    },
    { conversation: 'view-learner.txt' },
  ),
  replica(
    '46q',
    'whoever asked for a change that another took the place of never hears of it',
    {
      file: 'replica/write-order.ts',
      find: 'if (!again) for (const waiting of change?.tickets ?? []) this.#tellUnknown(waiting);',
      replace: '',
    },
    { conversation: 'view-remove.txt' },
  ),
  replica(
    '46r',
    'a majority is enough where writes are to be everywhere',
    {
      file: 'replica/write-order.ts',
      find: "if (this.#view.policy === 'all' && this.#countedView.joint === undefined) {",
      replace: 'if (this.#view === null) {',
    },
    { conversation: 'view-all.txt' },
  ),
  replica(
    '46s',
    'members that are gone for good hold up their own removal, where writes are to be everywhere',
    {
      file: 'replica/write-order.ts',
      find: "if (this.#view.policy === 'all' && this.#countedView.joint === undefined) {",
      replace: "if (this.#view.policy === 'all') {",
    },
    { conversation: 'view-all.txt' },
  ),
  replica(
    '46t',
    'members of a newer view, of which a promise tells, are not asked',
    {
      file: 'replica/replica.ts',
      find: 'if (reset.voters.size > before) for (const member of this.#others(reset)) this.#ask(reset, member);',
      replace: '',
    },
    { conversation: 'view-reset.txt' },
  ),
  replica(
    '46u',
    'a lease that both sets decided before their view was committed counts',
    {
      file: 'replica/write-order.ts',
      find: LEASE_OF_BOTH,
      replace: 'if (this.#lease.view < this.#view.number) return false;',
    },
    { conversation: 'view-remove.txt' },
  ),
  replica(
    '46v',
    'a primary has the lease asked for by a view that nobody else may know yet',
    {
      file: 'replica/write-order.ts',
      find: 'this.#standing.apply(operation, sessions, false);',
      replace: 'this.#standing.apply(operation, sessions, true);',
    },
    { conversation: 'view-change.txt' },
  ),
  replica(
    '46w',
    'a view that a primary accepted and did not tell is never told, once it is deposed',
    {
      file: 'replica/standing.ts',
      find: 'this.#goBy(install.view, true);',
      replace: 'if (!isSame(install.view, this.view)) this.#goBy(install.view, true);',
    },
    { conversation: 'view-told.txt' },
  ),
  replica(
    '46n4',
    'a view has the number of another one that an earlier epoch ordered and that came to nothing',
    {
      file: 'replica/view.ts',
      find: 'const number = Math.max(before + 1, (counter - 1) * VIEWS_PER_EPOCH);',
      replace: 'const number = before + 1;',
    },
    { directed: 'view that nobody heard of', says: 'Two hold the lease' },
  ),
  replica(
    '46y',
    'a replica hears servers that go by other members for the number of its view',
    {
      file: 'replica/view.ts',
      find: 'return !sameServers(a.members, b.members) || !sameServers(a.joint ?? [], b.joint ?? []);',
      replace: 'return false;',
    },
    { conversation: 'view-conflict.txt' },
  ),
  replica(
    '46y2',
    'a promise counts whatever members its server goes by',
    {
      file: 'replica/messages.ts',
      find: "return message.kind === 'promise' ? message.view : messageView(message);",
      replace: 'return messageView(message);',
    },
    { conversation: 'view-conflict.txt' },
  ),
  replica(
    '46y3',
    'a state that is fetched brings other members with it',
    {
      file: 'replica/backup.ts',
      find: 'const fits = stands && !viewsConflict(view, standing.view);',
      replace: 'const fits = stands;',
    },
    { conversation: 'view-conflict.txt' },
  ),
  replica(
    '46y4',
    'a replica whose view has other members at the catalog goes as one that has moved',
    {
      file: 'server/file/garbage.ts',
      find: '} else if (this.#isConflicting(file, place)) {',
      replace: '} else if (this.#isConflicting(file, place) && false) {',
    },
    {
      test: {
        file: 'test/server/births.test.ts',
        name: 'a replica whose view has other members at the catalog is reported, and not removed as one that has moved',
      },
    },
  ),
  replica(
    '46y5',
    'replicas with other members for the same view are compared as if they were of one history',
    {
      file: 'server/membership/anti-entropy.ts',
      find: 'else if (view !== undefined && this.#parts.conflicts.compare(file, record.view, view, from)) continue;',
      replace: '',
    },
    {
      test: {
        file: 'test/membership/anti-entropy.test.ts',
        name: 'a replica with other members for the same view is reported and neither behind nor ahead',
      },
    },
  ),
  replica(
    '46y6',
    'a server agrees with one that is no member of its view',
    {
      file: 'server/file/agreed-files.ts',
      find: 'return this.#isMember(from, file) && this.#agrees(file, place, viewNumber) ? YES : NO;',
      replace: 'return this.#agrees(file, place, viewNumber) ? YES : NO;',
    },
    {
      test: {
        file: 'test/server/agreed-files.test.ts',
        name: 'a server that is no member of the view here is agreed with by nobody',
      },
    },
  ),
  replica(
    '46x',
    'a change begins to members of whom nobody has what is committed',
    {
      file: 'replica/write-order.ts',
      find: 'return ready && target.every((server) => voters.includes(server) || hasIt(server));',
      replace: 'return target.every((server) => voters.includes(server) || hasIt(server));',
    },
    { conversation: 'view-lost.txt' },
  ),
  replica(
    '43a',
    'any majority of promises is believed',
    {
      file: 'replica/reset.ts',
      find: BELIEVED,
      replace: 'if (trusts.length >= needed) return true;',
    },
    { directed: 'loss of power', conversation: 'trust.txt' },
  ),
  replica(
    '43b',
    'a replica whose disk was replaced counts like one that lost power',
    {
      file: 'replica/reset.ts',
      find: BELIEVED,
      replace:
        'if (trusts.filter(isUnlost).length >= needed || (mayLose && trusts.length >= needed)) return true;',
    },
    { conversation: 'trust.txt' },
  ),
  replica(
    '43o',
    'those who lost power begin at once, although others may have what they lost',
    {
      file: 'replica/reset.ts',
      find: BELIEVED,
      replace: "if (trusts.filter(isUnlost).length >= needed || count('suspect') >= needed) return true;",
    },
    { conversation: 'trust.txt' },
  ),
  replica(
    '43c',
    'what is nowhere left begins anew, empty',
    {
      file: 'replica/reset.ts',
      find: "return trusts.length === side.length && (mayBeginLost || count('lost') < side.length);",
      replace: 'return trusts.length === side.length;',
    },
    { conversation: 'trust.txt' },
  ),
  replica(
    '43d',
    'a replica does not say with its promise that it may have lost something',
    {
      file: 'replica/backup.ts',
      find: '        trust: this.#standing.trust,',
      replace: "        trust: 'intact',",
    },
    { conversation: 'trust-backup.txt' },
  ),
  replica(
    '43e',
    'a replica is trusted again by what was meant for its life before the loss',
    {
      file: 'replica/backup.ts',
      find: 'const meant = trusted || to === this.#incarnation;',
      replace: 'const meant = trusted || to >= 0;',
    },
    { conversation: 'trust-backup.txt' },
  ),
  replica(
    '43f',
    'a replica that lost power is believed as soon as it has what the epoch began with',
    {
      file: 'replica/write-order.ts',
      find: 'const base = current ? { epoch: this.epoch, seq: this.#standing.seq } : this.#base;',
      replace: 'const base = this.#base;',
    },
    { conversation: 'trust-primary.txt' },
  ),
  replica(
    '43g',
    'a replica without its disk is made to follow before others said that there is no larger epoch',
    {
      file: 'replica/write-order.ts',
      find: 'if (!this.#mayInstall(peer)) return;',
      replace: '',
    },
    { conversation: 'trust-primary.txt' },
  ),
  replica(
    '43h',
    'what others answered before the loss was heard of says that there is no larger epoch',
    {
      file: 'replica/write-order.ts',
      find: 'else peer.lostSinceBeat ??= this.#beat;',
      replace: 'else peer.lostSinceBeat ??= 0;',
    },
    { conversation: 'trust-primary.txt' },
  ),
  replica(
    '43i',
    'a replica without its disk keeps the guard for a primary, though it may have forgotten another',
    {
      file: 'replica/write-order.ts',
      find: "if (trust !== 'lost') this.#noteGuard(from, beat, nowMs);",
      replace: 'this.#noteGuard(from, beat, nowMs);',
    },
    { conversation: 'trust-primary.txt' },
  ),
  replica(
    '43j',
    'nobody helps a replica that lost power to be trusted again',
    {
      file: 'replica/write-order.ts',
      find: "if (peer.fetching || trust !== 'intact') this.#sendInstall(peer);",
      replace: 'if (peer.fetching) this.#sendInstall(peer);',
    },
    { conversation: 'trust-primary.txt' },
  ),
  replica(
    '43k',
    'a replica in doubt that has everything stays in doubt',
    {
      file: 'replica/backup.ts',
      find: 'if (this.#has(epoch, base) && (trusted || !meant)) {',
      replace: 'if (this.#has(epoch, base)) {',
    },
    { conversation: 'trust-backup.txt' },
  ),
  replica(
    '43l',
    'the installation of an epoch does not end the doubt',
    {
      file: 'replica/standing.ts',
      find: "    this.trust = 'intact';",
      replace: '',
    },
    { conversation: 'trust-backup.txt' },
  ),
  replica(
    '43p',
    'a replica in doubt takes operations before it is whole',
    {
      file: 'replica/backup.ts',
      find: "if (standing.trust !== 'intact') return;",
      replace: '',
    },
    { conversation: 'trust-backup.txt' },
  ),
  replica(
    '43q',
    'members to come whose disks were all replaced are waited for for ever, although those before them have everything',
    { file: 'replica/reset.ts', find: ALL_TO_COME_LOST, replace: '' },
    { directed: 'empty disk to come', conversation: 'view-replaced.txt' },
  ),
  replica(
    '43r',
    'members to come whose disks were all replaced hold nothing up, although somebody is away who may know that they have led',
    { file: 'replica/reset.ts', find: ALL_TO_COME_LOST, replace: 'if (side === view.joint) return true;' },
    { conversation: 'view-replaced.txt' },
  ),
  replica(
    '43s',
    'nor do the members before them, of whom those to come need not have everything',
    { file: 'replica/reset.ts', find: ALL_TO_COME_LOST, replace: 'if (everybody) return true;' },
    { conversation: 'view-replaced.txt' },
  ),
  replica(
    '43t',
    'a primary gives a replica without its disk nothing where its set has no majority without it',
    {
      file: 'replica/write-order.ts',
      find: 'if (voters.every((server) => server === peer.server || confirms(server))) return true;',
      replace: '',
    },
    { directed: 'empty disk to come, under its primary', conversation: 'view-replaced.txt' },
  ),
  replica(
    '43u',
    'of several replicas without their disks each one vouches for the others',
    {
      file: 'replica/write-order.ts',
      find: "this.#peers.get(server)?.trust !== 'lost' && confirms(server);",
      replace: 'confirms(server);',
    },
    { conversation: 'view-replaced.txt' },
  ),
  replica(
    '43v',
    'what others said before a disk was replaced once more says that there is no larger epoch',
    {
      file: 'replica/write-order.ts',
      find: 'if (peer.lostSinceBeat !== null) peer.lostSinceBeat = this.#beat;',
      replace: '',
    },
    { conversation: 'view-replaced.txt' },
  ),
  replica(
    '44c',
    'a replica with damaged contents keeps them where another sends its own',
    {
      file: 'replica/backup.ts',
      find: ' && !this.#isRepairedBy(install.from)) {',
      replace: ') {',
    },
    { directed: 'damaged at the base', conversation: 'trust-backup.txt' },
  ),
  replica(
    '44d',
    'a replica with damaged contents is not believed to know what there is',
    {
      file: 'replica/reset.ts',
      find: BELIEVED,
      replace: "if (count('intact') >= needed || (mayLose && count('suspect') >= needed)) return true;",
    },
    { directed: 'damaged voter', conversation: 'trust.txt' },
  ),
  replica(
    '46n3',
    'a server that is to learn is asked once, and for ever waited for if that is lost',
    {
      file: 'replica/write-order.ts',
      find: 'if (isLearner && (!peer.installed || this.#isSilent(peer, nowMs))) this.#sendInstall(peer);',
      replace: 'assert(isLearner || !isLearner, "");',
    },
    { conversation: 'view-learner.txt' },
  ),
];
