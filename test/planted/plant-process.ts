/** Loaded before everything else in a process: makes it load the code with a bug; see `plant.ts`. */
import { registerHooks } from 'node:module';
import '../resolve-hook.ts';

const sources = new Map(JSON.parse(process.env.PLANTED_SOURCES ?? '[]') as readonly [string, string][]);

registerHooks({
  load(url, context, nextLoad) {
    const source = sources.get(url);
    if (source === undefined) return nextLoad(url, context);
    return { format: 'module', source, shortCircuit: true };
  },
});
