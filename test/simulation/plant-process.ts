/** Loaded before everything else of a process, has it load the code with a bug; see `plant.ts`. */
import { registerHooks } from 'node:module';
import { MUTATIONS_VARIABLE, plantedSources } from './plant.ts';
import type { Mutation } from './planted.ts';

const mutations = JSON.parse(process.env[MUTATIONS_VARIABLE] ?? '[]') as readonly Mutation[];
const sources = plantedSources(mutations);

registerHooks({
  load(url, context, nextLoad) {
    const source = sources.get(url);
    if (source === undefined) return nextLoad(url, context);
    return { format: 'module-typescript', source, shortCircuit: true };
  },
});
