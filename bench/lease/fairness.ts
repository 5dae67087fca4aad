/**
 * `npm run bench:fairness [-- --quick]`: which of several servers gets a lease that all want, by the offsets of their
 * clocks.
 */
import { fairnessMeasure } from '../../test/simulation/fairness.ts';
import { CLOCK_SKEW_MAX_MS } from '../../test/simulation/lease-world.ts';

/** @returns Pearson's statistic against equal shares of the leases that each server could have acquired */
function chiSquare(won: readonly number[], tookPart: readonly number[]): number {
  const wins = won.reduce((sum, count) => sum + count, 0);
  const chances = tookPart.reduce((sum, count) => sum + count, 0);
  return won.reduce((sum, count, index) => {
    const expected = (wins * (tookPart[index] as number)) / chances;
    return sum + (count - expected) ** 2 / expected;
  }, 0);
}

function print(elections: number): void {
  for (const servers of [3, 5]) {
    for (const skewMs of [0, CLOCK_SKEW_MAX_MS / 10, CLOCK_SKEW_MAX_MS]) {
      const { first, second, tookPart } = fairnessMeasure(servers, elections, skewMs);
      const all = first.map(() => elections);
      console.log(
        `${servers} servers, ${elections} elections, clocks ${skewMs} ms apart ` +
          `(ε is ${CLOCK_SKEW_MAX_MS} ms), from the slowest to the fastest clock`,
      );
      tablePrint('all begin together', first, all);
      tablePrint('another’s lease ended', second, tookPart);
    }
  }
}

function tablePrint(title: string, won: readonly number[], tookPart: readonly number[]): void {
  const shares = won.map((count, index) => count / (tookPart[index] as number));
  const text = shares.map((share) => `${(share * 100).toFixed(1)} %`.padStart(7)).join(' ');
  const ratio = Math.max(...shares) / Math.min(...shares);
  console.log(
    `  ${title.padEnd(22)} won ${text}   largest/smallest ${ratio.toFixed(2)}   ` +
      `χ² ${chiSquare(won, tookPart).toFixed(1)} (${won.length - 1} degrees of freedom)`,
  );
}

print(process.argv.includes('--quick') ? 300 : 3000);
