/** Figures of the [Flease] paper (ZIB-Report 10-02) and of the talk about it, printed beside ours. */
export const PAPER = {
  /** Leases per second of all machines together. */
  fleasePerSecond: 51_029,
  fleaseMachines: 30,
  /** Leases per second of one machine. */
  fleasePerSecondPerMachine: 51_029 / 30,
  /** ZooKeeper, all machines together. */
  zooKeeperPerSecond: 7_336,
  /** Files that one server can keep open, by the length of their leases. */
  openFilesAt60s: 102_058,
  openFilesAt14s: 24_000,
} as const;
