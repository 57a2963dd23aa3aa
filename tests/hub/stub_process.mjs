// For tests in node: starts stub_hub.mjs as a process and speaks to its control.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import readline from 'node:readline';
import { fileURLToPath } from 'node:url';

const script = path.join(path.dirname(fileURLToPath(import.meta.url)), 'stub_hub.mjs');

export async function startStub(args) {
  const child = spawn(process.execPath, [script, '--watch-stdin', ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
  const [line] = await once(readline.createInterface({ input: child.stdout }), 'line');
  const { hub, cdn } = JSON.parse(line);
  const ask = async (command, body) => {
    const response = await fetch(`${hub}/__stub/${command}`, body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) });
    const value = await response.json();
    if (!response.ok) throw new Error(`${command}: ${value.error}`);
    return value;
  };
  return { hub, cdn, ask, log: () => ask('log'), stop: () => child.stdin.end() };
}
