// The memory plan as parts of the budget. Pure.

const kParts = [
  ["process_bytes", "Program", "Code, tokenizer, manifest", "plan-1"],
  ["trunk_bytes", "Trunk", "Embeddings, mixers, routers, norms", "plan-2"],
  ["state_bytes", "State", "Keys and values of the conversations", "plan-3"],
  ["snapshots_bytes", "Snapshots", "Of the state, to go back in a conversation", "plan-4"],
  ["scratch_bytes", "Scratch", "What a pass computes in", "plan-5"],
  ["io_bytes", "I/O buffers", "Reads on their way", "plan-6"],
  ["slots_bytes", "Expert slots", "Experts that stay in memory", "plan-7"],
  ["reserve_bytes", "Reserve", "Stacks and allocator", "plan-8"],
];

// [{name, help, bytes, share, colour}] and what the budget has left: {parts, used, free, budget}.
export function planParts(plan) {
  const budget = plan.budget_bytes;
  const parts = kParts
    .map(([key, name, help, colour]) => ({ name, help, colour, bytes: plan[key] ?? 0 }))
    .filter(({ bytes }) => bytes > 0);
  const used = parts.reduce((sum, { bytes }) => sum + bytes, 0);
  // A plan never exceeds its budget; were it so, the bar must still not leave its box.
  const whole = Math.max(budget, used);
  return {
    parts: parts.map((part) => ({ ...part, share: part.bytes / whole })),
    used,
    free: Math.max(0, budget - used),
    budget,
  };
}
