/** `npm run simulate:kernel`: see HELP. */
import { parseArgs } from 'node:util';
import type { TransportName } from '../../../fuse/transports.ts';
import { differenceOf } from './comparison.ts';

const HELP = `npm run simulate:kernel -- [options]

Makes the same random calls on the model of the kernel and on the kernel of this machine, above the mount and a volume in memory,
and compares what the programs are answered, and over the transport "kernel" also what the file system is asked for.

  --seed N            first seed (1)
  --count N           seeds to play (20)
  --steps N           calls of each (200)
  --transport NAME    kernel or native (kernel)
  --age MS            for how long names and attributes are valid: 0, or so long that they are for ever (3600000)
`;

const { values } = parseArgs({
  options: {
    help: { type: 'boolean', default: false },
    seed: { type: 'string', default: '1' },
    count: { type: 'string', default: '20' },
    steps: { type: 'string', default: '200' },
    transport: { type: 'string', default: 'kernel' },
    age: { type: 'string', default: '3600000' },
  },
});
if (values.help) process.stdout.write(HELP);
else process.exitCode = await main();

async function main(): Promise<number> {
  const over = values.transport as TransportName;
  const ageMaxMs = Number(values.age);
  for (let seed = Number(values.seed); seed < Number(values.seed) + Number(values.count); seed++) {
    const difference = await differenceOf({ seed, steps: Number(values.steps), over, ageMaxMs });
    if (difference === null) continue;
    process.stdout.write(`SEED=${seed}\n${difference}\n`);
    return 1;
  }
  process.stdout.write(`${values.count} seeds of ${values.steps} calls: no difference\n`);
  return 0;
}
