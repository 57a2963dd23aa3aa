// All float operations over one struct of sixteen lanes, for the file of each instruction set.
#pragma once

#include "kernels/attend_ops.h"
#include "kernels/delta_ops.h"
#include "kernels/float_ops.h"
#include "kernels/plain_matmul.h"

namespace wader {
namespace {

template <typename L>
void set_float_ops_of(Kernels& k) {
  using Ops = FloatOps<L>;
  k.rms_norm = Ops::rms_norm;
  k.l2_norm = Ops::l2_norm;
  k.rope = Ops::rope;
  k.kv_dtype = DType::f16;
  k.store_kv = AttendOps<L>::store_kv;
  k.attend = AttendOps<L>::attend;
  k.swiglu = Ops::swiglu;
  k.swiglu_clamped = Ops::swiglu_clamped;
  k.topk_softmax = Ops::topk_softmax;
  k.softmax_topk = Ops::softmax_topk;
  k.add_scaled = Ops::add_scaled;
  k.sigmoid_gate = Ops::sigmoid_gate;
  k.silu_gate = Ops::silu_gate;
  k.conv_silu = Ops::conv_silu;
  k.delta_block = DeltaOps<L>::delta_block;
  k.delta_fold = DeltaOps<L>::delta_fold;
}

}  // namespace
}  // namespace wader
