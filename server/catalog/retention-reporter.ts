/** Dates are reported as of the next hour, so that many retentions need few reports. */
const HOUR_NS = 3_600_000_000_000n;

/**
 * Reports retentions of a volume's catalog to the root catalog, each later date once.
 * @param report resolves when the root catalog knows the date, and no loss of power makes it forget it
 */
export function retentionReporter(
  report: (untilNs: string) => Promise<unknown>,
): (untilNs: string) => Promise<void> {
  let reportedNs = 0n;
  return async (untilNs) => {
    if (BigInt(untilNs) <= reportedNs) return;
    const hourNs = (BigInt(untilNs) / HOUR_NS + 1n) * HOUR_NS;
    await report(`${hourNs}`);
    if (hourNs > reportedNs) reportedNs = hourNs;
  };
}
