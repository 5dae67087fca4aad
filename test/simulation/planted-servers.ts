/** Of storage, catalog, locks, quotas, uploads and access; see `planted.ts`. */
import type { Planted } from './planted.ts';

export const PLANTED_SERVERS: readonly Planted[] = [
  {
    layer: 'replica',
    row: '37b',
    rule: 'A promise is sent once the disk has it.',
    file: 'server/storage/replica-file.ts',
    in: 'ReplicaFile.#begin',
    find: 'this.#background($synced, $item)',
    replace: 'this.#background(Promise.resolve(), $item)',
    caughtBy: {
      test: { file: 'test/storage/faults.test.ts', name: 'a promise whose sync failed is not given' },
    },
  },
  {
    layer: 'replica',
    row: '37c',
    rule: 'A flush is answered once the disk has it.',
    file: 'server/storage/replica-file.ts',
    in: 'ReplicaFile.#perform',
    find: 'this.#makeDurable',
    replace: 'Promise.resolve',
    caughtBy: { test: { file: 'test/storage/power-loss.test.ts', name: 'leaves a state that was (SEED=1)' } },
  },
  {
    layer: 'replica',
    row: '38',
    rule: 'A disk that failed a sync is not asked again.',
    file: 'server/storage/shared-flush.ts',
    in: 'SharedFlush.#start',
    find: 'this.#failed = $running',
    replace: 'this.#running = null',
    also: [
      {
        file: 'server/storage/disk-store.ts',
        in: 'FailureState.check',
        find: 'if (this.#error !== null) throw this.#error;',
        replace: '',
      },
    ],
    caughtBy: {
      test: {
        file: 'test/storage/faults.test.ts',
        name: 'a failed sync of the contents is never retried: the store is over until a restart',
      },
    },
  },
  {
    layer: 'replica',
    row: '43m',
    rule: 'A server notices that the machine lost power.',
    file: 'server/storage/contents.ts',
    in: 'trustOf',
    find: `'suspect'`,
    replace: `'intact'`,
    caughtBy: { test: { file: 'test/storage/power-loss.test.ts', name: 'leaves a state that was (SEED=1)' } },
  },
  {
    layer: 'replica',
    row: '44a',
    rule: 'A damaged object is never returned.',
    file: 'server/storage/object-reader.ts',
    in: 'readRun',
    find: '$ownCount < $row.length || crc32($own) !== $row.crc32',
    replace: '$ownCount < 0',
    caughtBy: { test: { file: 'test/storage/faults.test.ts', name: 'a flipped bit is an integrity error' } },
  },
  {
    layer: 'replica',
    row: '44b',
    rule: 'A damaged object is repaired only by bytes of its checksum.',
    file: 'server/storage/disk-store.ts',
    in: 'DiskStore.#mend',
    find: '$bytes === null || $bytes.length !== $row.length || crc32($bytes) !== $row.crc32',
    replace: '$bytes === null',
    caughtBy: { test: { file: 'test/storage/repair.test.ts', name: 'is never replaced by other bytes' } },
  },
  {
    layer: 'replica',
    row: '47g',
    rule: 'After a loss of power a removal that was not synced is undone.',
    file: 'server/storage/replica-file.ts',
    in: 'ReplicaFile.#applyRemoving',
    find: 'this.#generations.keepObjects($first, $last, $epoch);',
    replace: '',
    caughtBy: {
      test: { file: 'test/storage/power-loss.test.ts', name: 'what a punch took away is there again' },
    },
  },
  {
    layer: 'replica',
    row: '60c',
    rule: 'A write keeps the epoch in which it was ordered.',
    file: 'server/file/file-primary.ts',
    in: 'FilePrimary.versionOf',
    find: '$seq > this.#inheritedSeq ? this.epoch.counter : this.#inherited.epoch',
    replace: '$seq === this.#inherited.seq ? this.#inherited.epoch : this.epoch.counter',
    caughtBy: {
      test: {
        file: 'test/server/file-primary.test.ts',
        name: 'writes that are asked for again after a fail-over have the versions that they had',
      },
    },
  },
  {
    layer: 'replica',
    row: '62a',
    rule: 'A new primary gives no lock away while its former holder may claim it.',
    file: 'server/file/file-locks.ts',
    in: 'FileLocks.#bookOf',
    find: '$needsNoGrace ? -Infinity : $nowMs + this.#spanMs',
    replace: '-Infinity',
    caughtBy: {
      test: {
        file: 'test/server/file-locks.test.ts',
        name: 'a new primary gives nothing away before the time to claim is over',
      },
    },
  },
  {
    layer: 'replica',
    row: '62b',
    rule: 'Locks end with the lease of their client.',
    file: 'server/file/file-locks.ts',
    in: 'FileLocks.#expire',
    find: '$book.table.remove($client);',
    replace: '',
    caughtBy: {
      test: {
        file: 'test/server/file-locks.test.ts',
        name: 'locks of a client that is silent end with its lease',
      },
    },
  },
  {
    layer: 'replica',
    row: '62c',
    rule: 'A lock is claimed only while no other client could have had it.',
    file: 'server/file/file-locks.ts',
    in: 'FileLocks.renew',
    find: '$nowMs >= $book.graceUntilMs || $book.table.conflict($wish) !== null',
    replace: '$book.table.conflict($wish) !== null',
    caughtBy: {
      test: {
        file: 'test/server/file-locks.test.ts',
        name: 'who comes after the time to claim has lost its locks',
      },
    },
  },
  {
    layer: 'replica',
    row: 'lock-fence',
    rule: 'Bytes that arrive after their client has lost the lock replace nothing.',
    file: 'server/file/file-primary.ts',
    in: 'FilePrimary.#submit',
    find: 'if ($request.under !== undefined) this.#assertLocked($request.under);',
    replace: '',
    caughtBy: {
      test: {
        file: 'test/server/lock-fence.test.ts',
        name: 'a change under locks that its client has lost is refused, also once it has new ones',
      },
    },
  },
  {
    layer: 'replica',
    row: 'lock-fence-again',
    rule: 'What was written under a lost lock is not taken for written under the next one.',
    file: 'server/file/file-locks.ts',
    in: 'FileLocks.assertHeld',
    find: '($book.clients.get($client)?.sinceStamp ?? Infinity) <= $stamp',
    replace: 'true',
    caughtBy: {
      test: {
        file: 'test/server/lock-fence.test.ts',
        name: 'a change under locks that its client has lost is refused, also once it has new ones',
      },
    },
  },
  {
    layer: 'replica',
    row: 'lock-fence-claimed',
    rule: 'The next primary takes changes under locks that are being claimed.',
    file: 'server/file/file-locks.ts',
    in: 'FileLocks.assertHeld',
    find: 'if (this.#parts.clock.nowMs() < $book.graceUntilMs) return;',
    replace: '',
    caughtBy: {
      test: {
        file: 'test/server/lock-fence.test.ts',
        name: 'the next primary takes changes under locks that are claimed, and refuses those under others',
      },
    },
  },
  {
    layer: 'replica',
    row: 'lock-fence-since',
    rule: 'Claimed locks count from before their claim.',
    file: 'server/file/file-locks.ts',
    in: 'FileLocks.#admit',
    find: '$isClaim ? 0 : $stamp',
    replace: '$stamp',
    caughtBy: {
      test: {
        file: 'test/server/lock-fence.test.ts',
        name: 'the next primary takes changes under locks that are claimed, and refuses those under others',
      },
    },
  },
  {
    layer: 'replica',
    row: '62e',
    rule: 'Giving back a part of a lock frees that part alone.',
    file: 'wire/lock-ranges.ts',
    in: 'rangesWith',
    find: 'if ($range.end > $wish.end) $after.push({ ...$range, start: $wish.end + 1n });',
    replace: '',
    caughtBy: {
      test: {
        file: 'test/server/lock-table.test.ts',
        name: 'giving back a part leaves what is before and behind it',
      },
    },
  },
  {
    layer: 'replica',
    row: 'lock-left',
    rule: 'A primary that ends says whether it left locks.',
    file: 'server/file/file-locks.ts',
    in: 'FileLocks.#end',
    find: '$locks.length > 0',
    replace: '$locks.length < 0',
    caughtBy: {
      test: {
        file: 'test/server/file-locks.test.ts',
        name: 'locks that a primary left when it ended in good order can be claimed',
      },
    },
  },
  {
    layer: 'replica',
    row: '63a',
    rule: 'A change waits until clients have forgotten what it changes.',
    file: 'server/catalog/catalog-service.ts',
    in: 'LocalCatalogService.#setAside',
    find: '!$held.includes(true)',
    replace: '$held.length > 0',
    caughtBy: {
      test: { file: 'test/server/client-caches.test.ts', name: 'nobody believes what is not so (SEED=1)' },
    },
  },
  {
    layer: 'replica',
    row: '63e',
    rule: 'A client is allowed to remember for no longer than the primary may answer.',
    file: 'server/catalog/client-caches.ts',
    in: 'ClientCaches.poll',
    find: 'Math.min(this.#options.leaseMsMax, $rightMs)',
    replace: 'this.#options.leaseMsMax + Math.min(0, $rightMs)',
    caughtBy: {
      test: {
        file: 'test/server/client-caches.test.ts',
        name: 'nobody believes longer than the primary may answer',
      },
    },
  },
  {
    layer: 'replica',
    row: '63g',
    rule: 'What is delegated to one client is granted to no other.',
    file: 'server/catalog/client-caches.ts',
    in: 'ClientCaches.#grantOne',
    find: 'this.#blocked.has($inode) || this.isDelegated($inode, $session.id)',
    replace: 'this.#blocked.has($inode)',
    caughtBy: {
      test: {
        file: 'test/server/client-caches.test.ts',
        name: 'a directory is delegated to one client, to which all others yield',
      },
    },
  },
  {
    layer: 'replica',
    row: 'recall-client',
    rule: 'A command recalls what its own client was granted in another session.',
    file: 'server/catalog/client-caches.ts',
    in: 'ClientCaches.#othersOf',
    find: '({ id, client }) => id !== $own || client !== $owner?.client',
    replace: '({ client }) => $own === undefined || client !== $owner?.client',
    caughtBy: {
      test: {
        file: 'test/server/client-caches.test.ts',
        name: 'a command that its client has stopped waiting for recalls what was granted to the same client since',
      },
    },
  },
  {
    layer: 'replica',
    row: 'fence-unchecked',
    rule: 'A fenced command is executed only while its delegation stands.',
    file: 'server/catalog/catalog-service.ts',
    in: 'LocalCatalogService.#executeBatch',
    find: '$subject.execute( $batch.map(($waiting) => $waiting.request), { nowNs, placement: ($replicas, $servers) => this.#parts.placement($replicas, $servers), capacity: ($servers) => this.#parts.capacity?.($servers) ?? Number.POSITIVE_INFINITY, refusal: ({ cache }) => this.#parts.recaller.refusal(cache), fencesSessions: this.#olderThan(SESSIONS_VERSION).length === 0 } )',
    replace:
      '$subject.execute( $batch.map(($waiting) => $waiting.request), { nowNs, placement: ($replicas, $servers) => this.#parts.placement($replicas, $servers), capacity: ($servers) => this.#parts.capacity?.($servers) ?? Number.POSITIVE_INFINITY, fencesSessions: this.#olderThan(SESSIONS_VERSION).length === 0 } )',
    caughtBy: {
      test: {
        file: 'test/server/fences.test.ts',
        name: 'a fenced command is executed while its delegation is held, and has no effect after that',
      },
    },
  },
  {
    layer: 'replica',
    row: 'fence-generation',
    rule: 'A fence names one generation of a delegation.',
    file: 'server/catalog/client-caches.ts',
    in: 'ClientCaches.holds',
    find: '$held?.session.id === $id && $held.generation === $generation && $nowMs < $held.session.untilMs',
    replace: '$held?.session.id === $id && $nowMs < $held.session.untilMs',
    caughtBy: {
      test: {
        file: 'test/server/client-caches.test.ts',
        name: 'a fence stands while the very delegation is held that it names',
      },
    },
  },
  {
    layer: 'replica',
    row: 'fence-older-member',
    rule: 'No session is given while a member that knows no fences may lead.',
    file: 'server/catalog/client-caches.ts',
    in: 'ClientCaches.poll',
    find: 'this.#closed || !$fenced',
    replace: 'this.#closed',
    caughtBy: {
      test: {
        file: 'test/server/client-caches.test.ts',
        name: 'a session is not renewed where fences are not obeyed any more',
      },
    },
  },
  {
    layer: 'replica',
    row: 'removal-written',
    rule: 'A late unlink does not remove what another client has written since.',
    file: 'catalog/commands/entries.ts',
    in: 'unlinkFiles',
    find: 'if ($contents !== null) assertUnwritten($place.name, $row, $contents);',
    replace: '',
    caughtBy: {
      test: {
        file: 'test/catalog/commands.test.ts',
        name: 'of many files those are not removed that were written since, or are being written',
      },
    },
  },
  {
    layer: 'replica',
    row: 'operators-unflushed',
    rule: 'A command of operators is answered once a majority has flushed it.',
    file: 'server/catalog/catalog-service.ts',
    in: 'LocalCatalogService.execute',
    find: 'if (DURABLE_KINDS.has($command.kind)) await this.#bounded(this.#parts.driver.flush());',
    replace: '',
    caughtBy: {
      test: {
        file: 'test/cluster/power-loss-of-all.test.ts',
        name: 'REST: a command of operators by `POST /v1/catalog/commands`: a volume is made',
      },
    },
  },
  {
    layer: 'replica',
    row: '69b',
    rule: 'A conditional write that was carried out is answered when it is repeated.',
    file: 'server/file/file-service.ts',
    in: 'LocalFileService.write',
    find: 'if ($isRefused && $orderer.leads && (await this.#isKnown($orderer, $request))) return $write({});',
    replace: '',
    caughtBy: {
      test: {
        file: 'test/server/file-primary.test.ts',
        name: 'a write that was done is answered again, although its condition holds no more',
      },
    },
  },
  {
    layer: 'replica',
    row: '70a',
    rule: 'A file grows within what the quota allows.',
    file: 'server/file/file-primary.ts',
    in: 'FilePrimary.#isBeyond',
    find: '$sizeBytes > this.#sizeBytes && $sizeBytes > this.#allowedBytes',
    replace: 'false',
    caughtBy: {
      test: {
        file: 'test/server/file-primary.test.ts',
        name: 'a file grows no further than the catalog allows',
      },
    },
  },
  {
    layer: 'replica',
    row: 'quota-inherited',
    rule: 'A new primary asks before a file grows.',
    file: 'server/file/file-primary.ts',
    in: 'FilePrimary.constructor',
    find: '0',
    replace: 'Infinity',
    caughtBy: {
      test: {
        file: 'test/server/file-primary.test.ts',
        name: 'who follows a primary in the midst of its changes writes without a word from the catalog, and grows with one',
      },
    },
  },
  {
    layer: 'replica',
    row: 'quota-never-ends',
    rule: 'What was reserved for a file is given back without its primary.',
    file: 'server/file/reservation-sweep.ts',
    in: 'ReservationSweep.#round',
    find: '([$file, $mark]) => isSame($before.get($file), $mark) && isDue($file)',
    replace: '() => $before.size < 0',
    caughtBy: {
      test: {
        file: 'test/server/reservation-sweep.test.ts',
        name: 'what files may grow to ends where the primary that asked has gone',
      },
    },
  },
  {
    layer: 'replica',
    row: '84c',
    rule: 'What a snapshot shows is not collected.',
    file: 'catalog/commands/snapshots.ts',
    in: 'isShown',
    find: '$snapshots.holdsContents($id) || $snapshots.needs($id)',
    replace: '$snapshots.needs($id)',
    caughtBy: {
      test: {
        file: 'test/catalog/snapshots.test.ts',
        name: 'snapshots show what was, whatever is done, and go without a trace',
      },
    },
  },
  {
    layer: 'replica',
    row: '84f',
    rule: 'The first change after a snapshot waits until contents are kept.',
    file: 'server/file/live-marks.ts',
    in: 'LiveMarks.set',
    find: '$wish !== null',
    replace: '$wish === undefined',
    caughtBy: {
      test: {
        file: 'test/server/snapshots.test.ts',
        name: 'snapshots under load are made in time, and each shows one moment for ever',
      },
    },
  },
  {
    layer: 'replica',
    row: 'session-forgotten',
    rule: 'A request of a forgotten session is not taken for a new one.',
    file: 'catalog/sessions.ts',
    in: 'sessionRecall',
    find: '($forgottenSeq > 0 && $id.since <= $forgottenSeq) || $id.since >= $seq',
    replace: '$id.since >= $seq',
    caughtBy: {
      test: {
        file: 'test/catalog/sessions.test.ts',
        name: 'a command is not repeated after its session was forgotten',
      },
    },
  },
  {
    layer: 'replica',
    row: 'upload-twice',
    rule: 'An upload is completed once.',
    file: 'server/http/tus-uploads.ts',
    in: 'TusUploads.complete',
    find: 'this.#files.name($path, $state, $conditions, $key)',
    replace: 'this.#files.name($path, $state, $conditions, null)',
    caughtBy: {
      test: {
        file: 'test/http/exactly-once.test.ts',
        name: 'an upload that two servers complete is completed once',
      },
    },
  },
  {
    layer: 'replica',
    row: 'key-twice',
    rule: 'A request with a key is carried out once, on whichever server it arrives.',
    file: 'server/http/new-files.ts',
    in: 'NewFiles.name',
    find: `($commands.result ) ?? (await changeUnder(this.#gateway, $path, $conditions, true, (expect) => this.#gateway.command({ kind: 'replace', place, inode, expect, ...$removal }, $commands.next()) ))`,
    replace: `null ?? (await changeUnder(this.#gateway, $path, $conditions, true, (expect) => this.#gateway.command({ kind: 'replace', place, inode, expect, ...$removal }, $commands.next()) ))`,
    caughtBy: {
      test: {
        file: 'test/http/exactly-once.test.ts',
        name: 'a request with a key that two servers carry out is carried out once',
      },
    },
  },
  {
    layer: 'replica',
    row: 'write-unpinned',
    rule: 'Each attempt of a write with a key names the same beginning.',
    file: 'server/http/partial-write.ts',
    in: 'PartialWrites.#pin',
    find: 'await pinWrite(this.#gateway, $key, $write)',
    replace: '$write',
    caughtBy: {
      test: {
        file: 'test/http/exactly-once.test.ts',
        name: 'all attempts of a write with a key name the file and the beginning that the first one named',
      },
    },
  },
  {
    layer: 'replica',
    row: 'write-crowd',
    rule: 'Writes over REST of one file share sessions, which a file remembers few of.',
    file: 'server/http/write-names.ts',
    in: 'WriteNames.of',
    find: 'this.#files.set($file, $names);',
    replace: '',
    caughtBy: {
      test: {
        file: 'test/http/exactly-once.test.ts',
        name: 'writes of one file share a session, and answers of those with a key are kept',
      },
    },
  },
  {
    layer: 'replica',
    row: 'birth-members',
    rule: 'The members of a file are those that its number was reserved with.',
    file: 'catalog/command.ts',
    in: 'replicasOf',
    find: 'if ($members.length > 0) return $members;',
    replace: '',
    caughtBy: {
      test: {
        file: 'test/catalog/births.test.ts',
        name: 'a file with a reserved number has the members of the reservation, in whatever way it is made',
      },
    },
  },
  {
    layer: 'replica',
    row: 'birth-opened',
    rule: 'Contents of a file that has its name are stored only where no client has opened it.',
    file: 'server/file/births.ts',
    in: 'Births.#isLeftAlone',
    find: 'this.#parts.host.has($inode )',
    replace: 'false',
    caughtBy: {
      test: {
        file: 'test/server/births.test.ts',
        name: 'a file that has its name, and was opened since, is left to its primary',
      },
    },
  },
  {
    layer: 'replica',
    row: 'birth-garbage',
    rule: 'Contents that wait for their name are not collected.',
    file: 'server/file/garbage.ts',
    in: 'Garbage.#removeUnknown',
    find: 'if ($awaited.has($file)) continue;',
    replace: '',
    caughtBy: {
      test: {
        file: 'test/server/births.test.ts',
        name: 'what is borne is not collected before its number is void',
      },
    },
  },
  {
    layer: 'replica',
    row: '46y4',
    rule: 'A replica with other members for its view is kept and reported.',
    file: 'server/file/garbage.ts',
    in: 'Garbage.#removeUnknown',
    find: 'this.#isConflicting($file, $place)',
    replace: 'this.#isConflicting($file, $place) && false',
    caughtBy: {
      test: {
        file: 'test/server/births.test.ts',
        name: 'a replica whose view has other members at the catalog is reported, and not removed as one that has moved',
      },
    },
  },
  {
    layer: 'replica',
    row: 'catalog-shrinks',
    rule: 'The catalog does not shrink because a server is away.',
    file: 'server/membership/wanted-members.ts',
    in: 'catalogReplicasWanted',
    find: 'Math.max($first, $now, ...CATALOG_REPLICAS.filter(($count) => $count <= $inCount))',
    replace: 'Math.max($first, ...CATALOG_REPLICAS.filter(($count) => $count <= $inCount))',
    caughtBy: {
      test: {
        file: 'test/membership/steward.test.ts',
        name: 'the catalog of a cluster that began with one server is on three once there are three, and on five of five',
      },
    },
  },
  {
    layer: 'replica',
    row: '72a',
    rule: 'All members execute a command alike, whatever their release.',
    file: 'catalog/batch.ts',
    in: 'decodeCommand',
    find: 'commandAsOf($command , $version)',
    replace: '$command',
    caughtBy: {
      test: {
        file: 'test/catalog/versions.test.ts',
        name: 'what a server of before passed over is passed over here',
      },
    },
  },
  {
    layer: 'replica',
    row: '73a',
    rule: 'The signature of a capability covers all of its fields.',
    file: 'server/security/capabilities.ts',
    in: 'signatureOf',
    find: `createHmac('sha256', $key).update('leasehold capability ').update($payload)`,
    replace: `createHmac('sha256', $key).update('leasehold capability ').update($payload.slice(0, 8))`,
    caughtBy: {
      test: {
        file: 'test/security/rules.test.ts',
        name: 'a capability is worth nothing with any of its fields changed',
      },
    },
  },
  {
    layer: 'replica',
    row: '73c',
    rule: 'A role allows what it includes.',
    file: 'server/security/authorization.ts',
    in: 'checkRole',
    find: 'if (roleIncludes($role, $wanted)) return;',
    replace: 'return;',
    caughtBy: {
      test: { file: 'test/security/rules.test.ts', name: 'a role lets do what it includes, and no more' },
    },
  },
  {
    layer: 'replica',
    row: '73e',
    rule: 'A capability is good for one file.',
    file: 'server/security/authorization.ts',
    in: 'checkCapability',
    find: '$capability !== null && $capability.file === $file && $capability.to === $grant.name',
    replace: '$capability !== null && $capability.to === $grant.name',
    caughtBy: {
      test: {
        file: 'test/security/rules.test.ts',
        name: 'a capability is for its file, what it says may be done, its holder and its volume',
      },
    },
  },
  {
    layer: 'replica',
    row: 'resumed-drained',
    rule: 'A server that is being drained leads nothing without a lease.',
    file: 'server/file/file-service.ts',
    in: 'LocalFileService.#mayOrder',
    find: '$holder === null && $lease.isUsable() && ($yieldTo?.($view) ?? null) === null',
    replace: '$holder === null && $lease.isUsable()',
    caughtBy: {
      test: {
        file: 'test/server/resumed-files.test.ts',
        name: 'who is being drained, or about to end, orders nothing without a lease either',
      },
    },
  },
  {
    layer: 'replica',
    row: 'access-restored',
    rule: 'A late read does not undo an access time that was set.',
    file: 'catalog/commands/accesses.ts',
    in: 'mayBeSet',
    find: '$isStrict && $inode.changedNs !== $inode.modifiedNs',
    replace: 'false',
    caughtBy: {
      test: {
        file: 'test/catalog/accesses.test.ts',
        name: 'a read of before does not count after the access time was set to what it was',
      },
    },
  },
  {
    layer: 'replica',
    row: 'name-mark',
    rule: 'Names keep all of their bytes.',
    file: 'base/utf8.ts',
    in: 'DECODER',
    find: `new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })`,
    replace: `new TextDecoder('utf-8', { fatal: true, ignoreBOM: false })`,
    caughtBy: {
      test: {
        file: 'test/base/utf8.test.ts',
        name: 'a text has the bytes that it came from, whatever they stand for',
      },
    },
  },
  {
    layer: 'replica',
    row: 'birth-majority-of-all',
    rule: 'Contents are stored by all replicas where the volume wants all.',
    file: 'server/file/births.ts',
    in: 'Births.#isLeftAlone',
    find: `$settings.policy !== 'quorum'`,
    replace: 'false',
    caughtBy: {
      test: {
        file: 'test/server/births.test.ts',
        name: 'each file that has its name is judged by its own volume, whatever its request names',
      },
    },
  },
  {
    layer: 'replica',
    row: 'birth-remembered-quota',
    rule: 'Whether growth is bounded is asked of the catalog, not remembered.',
    file: 'server/file/births.ts',
    in: 'Births.#isLeftAlone',
    find: '$settings.limited',
    replace: 'volume.quotaBytes > 0',
    caughtBy: {
      test: {
        file: 'test/server/births.test.ts',
        name: 'a file that has its name in a volume with a quota is left to its primary, also where the quota is new',
      },
    },
  },
  {
    layer: 'replica',
    row: 'lease-older-holder',
    rule: 'A server votes for no holder that cannot be primary.',
    file: 'server/lease-link.ts',
    in: 'LeaseLink.#admitted',
    find: '$holder !== $from || $remainingMs <= 0',
    replace: 'false',
    caughtBy: {
      test: {
        file: 'test/server/lease-driver.test.ts',
        name: 'a server that others do not let acquire a lease does not get it',
      },
    },
  },
  {
    layer: 'replica',
    row: 'quota-asked-in-vain',
    rule: 'A file that cannot be settled is asked for ever more seldom.',
    file: 'server/file/reservation-sweep.ts',
    in: 'ReservationSweep.#round',
    find: 'this.#settled.get($file)?.againFrom ?? 0',
    replace: '0',
    caughtBy: {
      test: {
        file: 'test/server/reservation-sweep.test.ts',
        name: 'a file whose contents are older than the catalog knows is settled ever more seldom, and reported',
      },
    },
  },
  {
    layer: 'replica',
    row: 'birth-of-another-volume',
    rule: 'Contents of a file are stored as its own volume wants.',
    file: 'server/file/births.ts',
    in: 'Births.#isLeftAlone',
    find: '$settings.volume !== $volume.name',
    replace: 'false',
    caughtBy: {
      test: {
        file: 'test/server/births.test.ts',
        name: 'each file that has its name is judged by its own volume, whatever its request names',
      },
    },
  },
  {
    layer: 'replica',
    row: 'birth-without-rights',
    rule: 'A token for one volume fills no file of another.',
    file: 'server/security/authorization.ts',
    in: 'checkBody',
    find: '$isNamed === true ? [$parent, $inode] : [$parent]',
    replace: '[$parent]',
    caughtBy: {
      test: {
        file: 'test/security/attacks.test.ts',
        name: 'births and the trash: of another volume, of a number that is not reserved, of one that another has',
      },
    },
  },
  {
    layer: 'replica',
    row: 'join-registered',
    rule: 'A server that cannot work with a cluster is refused before it is registered.',
    file: 'server/membership/join.ts',
    in: 'joinAt',
    find: '$parts.accepts($before);',
    replace: '',
    caughtBy: {
      test: {
        file: 'test/cluster/join.test.ts',
        name: 'a join with other settings is refused by option and values, before the catalog registers the server',
      },
    },
  },
  {
    layer: 'replica',
    row: 'join-unheard',
    rule: 'A server that cannot listen is not registered.',
    file: 'server/membership/cluster-plan.ts',
    in: 'join',
    find: 'await $machine.assertFree($config.listen);',
    replace: '',
    caughtBy: {
      test: { file: 'test/cluster/join.test.ts', name: 'a server that cannot listen is not registered' },
    },
  },
  {
    layer: 'replica',
    row: 'rebuild-forgets',
    rule: 'A server that is rebuilt keeps the addresses of the others.',
    file: 'server/storage/set-aside.ts',
    in: 'setAside',
    find: '$names.includes(SERVERS_FILE)',
    replace: '$names.length < 0',
    caughtBy: {
      test: {
        file: 'test/storage/set-aside.test.ts',
        name: 'what is put aside leaves the addresses of the other servers to the empty folder',
      },
    },
  },
  {
    layer: 'replica',
    row: 'ballast-hole',
    rule: 'The reserve for a start on a full disk takes space.',
    file: 'server/storage/ballast.ts',
    in: 'ballastKeep',
    find: 'fs.promises.writeFile($fresh, Buffer.alloc(BALLAST_BYTES), { mode: 0o600, flush: true })',
    replace: `fs.promises.writeFile($fresh, ''); await fs.promises.truncate($fresh, BALLAST_BYTES)`,
    caughtBy: {
      test: {
        file: 'test/storage/ballast.test.ts',
        name: 'a ballast takes blocks of the disk, and is released once',
      },
    },
  },
  {
    layer: 'replica',
    row: 'ballast-unused',
    rule: 'A start on a full disk uses the space that is reserved for it.',
    file: 'server/server.ts',
    in: 'Server.start',
    find: 'ballastRelease($config.data)',
    replace: `$config.data === ''`,
    caughtBy: {
      test: {
        file: 'test/server/full-start.test.ts',
        name: 'a start on a full disk uses the reserved space, and without any is left to a later start',
      },
    },
  },
];
