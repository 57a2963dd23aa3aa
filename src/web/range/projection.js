// A camera that turns around the origin: yaw about the upright axis, then pitch, then perspective. Pure.

const kDistance = 3.6; // of the eye; most points are within 1 of the middle
const kPitchMax = 1.5;

export class Camera {
  yaw = 0.6;
  pitch = 0.35;
  zoom = 1;

  turn(yaw, pitch) {
    this.yaw = (this.yaw + yaw) % (2 * Math.PI);
    this.pitch = Math.max(-kPitchMax, Math.min(kPitchMax, this.pitch + pitch));
  }

  scale(factor) {
    this.zoom = Math.max(0.4, Math.min(8, this.zoom * factor));
  }

  // Points (n × 3) → screen (n × 3: x, y in pixels, and 1 near … 0 far), into `screen`.
  project(points, width, height, screen) {
    const [sy, cy, sp, cp] = [
      Math.sin(this.yaw),
      Math.cos(this.yaw),
      Math.sin(this.pitch),
      Math.cos(this.pitch),
    ];
    const size = 0.42 * Math.min(width, height) * this.zoom * kDistance;
    for (let i = 0; i < points.length; i += 3) {
      const x = points[i] * cy + points[i + 2] * sy;
      const z = points[i + 2] * cy - points[i] * sy;
      const y = points[i + 1] * cp - z * sp;
      const depth = points[i + 1] * sp + z * cp; // towards the eye
      const from = Math.max(0.1, kDistance - depth);
      screen[i] = width / 2 + (size * x) / from;
      screen[i + 1] = height / 2 - (size * y) / from;
      screen[i + 2] = Math.max(0, Math.min(1, (depth + 1.2) / 2.4));
    }
  }
}

// Positions about their mean: (n × 3) f32, scaled so that 49 of 50 lie within a distance of 1; a few far out would
// else press all others together. What is no number is 0.
export function normalise(positions) {
  const points = new Float32Array(positions.length * 3);
  positions.forEach((position, i) => {
    for (let axis = 0; axis < 3; axis++)
      points[3 * i + axis] = Number.isFinite(position?.[axis]) ? position[axis] : 0;
  });
  const mean = [0, 0, 0];
  for (let i = 0; i < points.length; i++) mean[i % 3] += points[i] / Math.max(1, positions.length);
  const distances = new Float32Array(positions.length);
  for (let i = 0; i < points.length; i += 3) {
    for (let axis = 0; axis < 3; axis++) points[i + axis] -= mean[axis];
    distances[i / 3] = Math.hypot(points[i], points[i + 1], points[i + 2]);
  }
  const reach = distances.sort()[Math.floor(0.98 * (distances.length - 1))];
  if (reach > 0) for (let i = 0; i < points.length; i++) points[i] /= reach;
  return points;
}

// The nearest of the visible points to a place on the screen, within `reach` pixels; of equals the one in front.
export function nearest(screen, visible, x, y, reach) {
  let best = -1;
  let bestScore = Infinity;
  for (let i = 0; i < visible.length; i++) {
    if (!visible[i]) continue;
    const distance = Math.hypot(screen[3 * i] - x, screen[3 * i + 1] - y);
    if (distance > reach) continue;
    const score = distance - 2 * screen[3 * i + 2];
    if (score < bestScore) {
      bestScore = score;
      best = i;
    }
  }
  return best;
}

// The order from far to near, by buckets: 24 thousand points a frame leave no time for a sort.
export function depthOrder(screen, order) {
  const kBuckets = 64;
  const counts = new Uint32Array(kBuckets + 1);
  const bucket = (i) => Math.min(kBuckets - 1, Math.floor(screen[3 * i + 2] * kBuckets));
  for (let i = 0; i < order.length; i++) counts[bucket(i) + 1]++;
  for (let b = 1; b <= kBuckets; b++) counts[b] += counts[b - 1];
  for (let i = 0; i < order.length; i++) order[counts[bucket(i)]++] = i;
}
