import type { DirectoryClass, VolumeInfo } from '../../wire/catalog-api.ts';
import { classFits, classText, isRestricted } from '../../wire/placement-class.ts';
import type { ServerCondition } from './wanted-members.ts';

/**
 * Volumes, and directories with a class of their own, with fewer allowed servers than replicas: new files have fewer
 * replicas, and others stay where they are.
 */
export function placementShortages(
  volumes: readonly VolumeInfo[],
  directories: readonly DirectoryClass[],
  servers: readonly ServerCondition[],
): string[] {
  const taking = servers.filter(({ state, toBeReplaced }) => state === 'in' && !toBeReplaced);
  const counts = new Map(volumes.map(({ name, replicas }) => [name, replicas]));
  const classes = [
    ...volumes.map((volume) => ({ ...volume, what: `Volume "${volume.name}"` })),
    ...directories.map((one) => ({
      ...one,
      what: `Directory ${one.directory} of volume "${one.volume}" (see "leasehold placement ls")`,
      replicas: one.replicas ?? counts.get(one.volume) ?? 0,
    })),
  ];
  return classes.filter(isRestricted).flatMap((one) => {
    const count = taking.filter((server) => classFits(one, server)).length;
    if (count >= one.replicas) return [];
    const there = count === 1 ? 'is 1 server' : `are ${count} servers`;
    return [
      `${one.what} lacks servers for ${one.replicas} replicas of its files: there ${there} ${classText(one)}`,
    ];
  });
}
