# SPDX-License-Identifier: Apache-2.0
# Whole programs on the software GPU, with slipring preloaded. Each is a plain NCCL + cuBLAS program; run.sh checks results, log and misuse.

set(libraries cudart cublas cublasLt nccl)
program(gather_matrix gather_matrix.c LIBS ranks ${libraries})
program(fuse fuse.c LIBS fuse_api ranks ${libraries})
program(fuse_lt fuse_lt.c LIBS fuse_api ranks ${libraries})
program(fuse_narrow fuse_narrow.c fuse_narrow_data.c fuse_narrow_call.c LIBS fuse_api ranks ${libraries} m)
program(aside aside.c LIBS fuse_api ranks ${libraries})
program(turns turns.c LIBS ranks ${libraries})
program(call_sites call_sites.c LIBS ranks ${libraries})
program(iterations iterations.c LIBS ranks ${libraries})
program(same_bits same_bits.c LIBS ranks ${libraries})
program(workspace workspace.c LIBS ranks ${libraries})

set(substituted --set SLIPRING_MIN_BYTES=0 --has "\"event\":\"substitute\"" --hasnt "\"event\":\"pass\",\"op\":\"allgather\"")

# A sanitizer's shadow takes a part of the memory that is touched, or several times as much.
if(SLIPRING_SANITIZE)
  set(largest 2000000)
endif()
foreach(n 2 3 4 8)
  run(e2e_gather_${n} 300 ${run_sh} ${substituted} -- $<TARGET_FILE:gather_matrix> ${n} ${largest})
endforeach()
# Small slots: many pieces for each shard, every slot used again and again.
run(e2e_gather_small_slots 120 ${run_sh} ${substituted} --set SLIPRING_SLOT_BYTES=16K -- $<TARGET_FILE:gather_matrix> 3 2000000)
run(e2e_gather_chunks 120 ${run_sh} ${substituted} --set SLIPRING_CHUNKS=5 -- $<TARGET_FILE:gather_matrix> 4 2000000)
# Without slipring the same programs pass too: they are plain NCCL programs.
run(e2e_gather_plain 60 ${run_sh} --plain --hasnt . -- $<TARGET_FILE:gather_matrix> 3 5000)
run(e2e_fuse_plain 60 ${run_sh} --plain --hasnt . -- $<TARGET_FILE:fuse> 2 bn-beta)
# Below SLIPRING_MIN_BYTES all passes, with the reason.
run(e2e_gather_below_min 60 ${run_sh} --set SLIPRING_MIN_BYTES=1G --has "\"reason\":\"below_min_bytes\"" --hasnt "\"event\":\"substitute\""
  -- $<TARGET_FILE:gather_matrix> 2 5000)

# fuse(CASE OUTCOME REASON RANKS... [OPTIONS run.sh-options...]): OUTCOME is fused or joined, and the other one must not occur; or both.
function(fuse case outcome reason)
  cmake_parse_arguments(F "" "SUFFIX;PROGRAM" "RANKS;OPTIONS" ${ARGN})
  if(NOT F_PROGRAM)
    set(F_PROGRAM fuse)
  endif()
  if(outcome STREQUAL fused)
    set(want --has "\"event\":\"fused\"" --hasnt "\"event\":\"joined\"")
  elseif(outcome STREQUAL joined)
    set(want --has "\"event\":\"joined\".*\"reason\":\"${reason}\"" --hasnt "\"event\":\"fused\"")
  else()
    set(want --has "\"event\":\"joined\".*\"reason\":\"${reason}\"" --has "\"event\":\"fused\"")
  endif()
  foreach(n ${F_RANKS})
    run(e2e_${F_PROGRAM}_${case}${F_SUFFIX}_${n} 120 ${run_sh} ${substituted} ${want} ${F_OPTIONS} -- $<TARGET_FILE:${F_PROGRAM}> ${n} ${case})
  endforeach()
endfunction()

foreach(case bn at)
  fuse(${case} fused "" RANKS 2 3 4 8)
endforeach()
# PyTorch's cudaMallocAsync backend allocates the GEMM's output behind the gather.
run(e2e_fuse_behind_alloc 60 ${run_sh} ${substituted} --has "\"event\":\"fused\"" --hasnt "\"by\":\"cuMemAllocAsync\"" -- $<TARGET_FILE:ag_gemm>
  --ranks 2 --m 64 --n 96 --k 64 --iters 3 --check full --poison --interpose-op alloc)
foreach(case bn-odd at-odd bn-beta at-beta bn-in-place bn-64 sgemm sgemm-64 dgemm hgemm strided-batch-1 tf32 device-scalars default-stream large large-at)
  fuse(${case} fused "" RANKS 2 4)
endforeach()
# Several chunks for each shard, whose borders do not fall on columns; each chunk of each shard is a part.
foreach(case bn-odd large large-at)
  fuse(${case} fused "" RANKS 3 SUFFIX _chunks OPTIONS --set SLIPRING_CHUNKS=7 --set SLIPRING_FLOP_PER_BYTE=0 --hasnt "\"parts\":3,")
endforeach()
# All ranks make the same parts, as few as the expected arrival asks for: one for each shard, or the last chunk apart.
fuse(large fused "" RANKS 3 SUFFIX _quick OPTIONS --set SLIPRING_CHUNKS=7 --set SLIPRING_FLOP_PER_BYTE=20 --hasnt "\"parts\":([0-24-9]|..),")
fuse(large-at fused "" RANKS 4 SUFFIX _paced OPTIONS --set SLIPRING_CHUNKS=3 --set SLIPRING_FLOP_PER_BYTE=1000000 --hasnt "\"parts\":([0-79]|..),")
fuse(large fused "" RANKS 4 SUFFIX _small_slots OPTIONS --set SLIPRING_SLOT_BYTES=20000 --set SLIPRING_FLOP_PER_BYTE=0)
fuse(pad joined gemm_leading_dimension RANKS 2 4)
fuse(uneven joined gemm_shape RANKS 2 4)
fuse(b-transposed joined gemm_transpose RANKS 2)
fuse(a-plain joined gemm_transpose RANKS 2)
# Sums over the gathered dimension: in parts of one chunk each, in the order of the shards; or as the expected arrival asks for, the last one over
# several shards.
set(each_chunk --set SLIPRING_CHUNKS=5 --set SLIPRING_FLOP_PER_BYTE=0)
set(paced --set SLIPRING_CHUNKS=7 --set SLIPRING_FLOP_PER_BYTE=1000000)
foreach(case bt-add bt-add-across an-add an-add-across bt-add-odd an-add-odd)
  fuse(${case} fused "" RANKS 2 3 4 OPTIONS --set SLIPRING_FLOP_PER_BYTE=0 --has "\"form\":\"(A/N|B/T)\"")
endforeach()
foreach(case an-add-64 an-add-batch-1 bt-add-tf32 an-add-dgemm)
  fuse(${case} fused "" RANKS 3 OPTIONS --set SLIPRING_FLOP_PER_BYTE=0)
endforeach()
fuse(an-add-other-stream fused "" RANKS 2 3 OPTIONS --set SLIPRING_FLOP_PER_BYTE=0 --has "\"via\":\"event\"")
foreach(case an-add-large bt-add-large)
  fuse(${case} fused "" RANKS 2 3 4 SUFFIX _chunks OPTIONS ${each_chunk} --hasnt "\"parts\":.,")
  fuse(${case} fused "" RANKS 2 3 4 SUFFIX _paced OPTIONS ${paced} --has "\"parts\":2," --hasnt "\"parts\":([013-9]|..),")
endforeach()
foreach(case an-beta-2 bt-beta-0)
  fuse(${case} joined gemm_transpose RANKS 2)
  fuse(${case} fused "" RANKS 3 SUFFIX _all OPTIONS --set SLIPRING_SPLIT_K=all --set SLIPRING_FLOP_PER_BYTE=0)
endforeach()
# A gather that another GEMM has hidden is not worth another part of the sum; one that a small GEMM stood beside is.
fuse(an-add-beside joined gemm_sum_short RANKS 2 OPTIONS --set SLIPRING_CHUNKS=4 --set SLIPRING_FLOP_PER_BYTE=40000)
fuse(an-add-beside-small fused "" RANKS 2 OPTIONS --set SLIPRING_CHUNKS=4 --set SLIPRING_FLOP_PER_BYTE=40000 --has "\"parts\":2,")
fuse(an-add fused "" RANKS 3 SUFFIX _parts OPTIONS --set SLIPRING_PARTS=5 --has "\"parts\":5,")
fuse(an-add joined gemm_whole RANKS 3 SUFFIX _part OPTIONS --set SLIPRING_PARTS=1)
fuse(an-add joined gemm_sum_short RANKS 2 SUFFIX _short)
fuse(an-add joined gemm_transpose RANKS 2 SUFFIX _off OPTIONS --set SLIPRING_SPLIT_K=off --set SLIPRING_FLOP_PER_BYTE=0)
fuse(an-add joined strict RANKS 2 SUFFIX _strict OPTIONS --set SLIPRING_STRICT=on --set SLIPRING_FLOP_PER_BYTE=0)
fuse(an-add-hgemm joined gemm_sum_type RANKS 2 OPTIONS --set SLIPRING_SPLIT_K=all --set SLIPRING_FLOP_PER_BYTE=0)
fuse(an-add-device joined gemm_sum_scalars RANKS 2 OPTIONS --set SLIPRING_SPLIT_K=all --set SLIPRING_FLOP_PER_BYTE=0)
fuse(memset-between joined other_operation RANKS 2 4)
fuse(copy-between joined other_operation RANKS 2 4)
fuse(event-between joined host_observes RANKS 2 4)
fuse(sync-between joined host_observes RANKS 2 4)
# PyTorch's allocator asks so at every call.
fuse(question-between fused "" RANKS 2)
run(e2e_mutant_question_joins 60 WITH question_joins ${run_sh} ${substituted} --has "\"by\":\"cuStreamGetCaptureInfo" -- $<TARGET_FILE:fuse> 2 question-between)
fuse(other-gemm-between fused "" RANKS 2 4 OPTIONS --has "\"event\":\"overtaken\".*\"m\":4,\"n\":4,\"k\":4,\"trans\":\"nn\".*\"reads\":\"elsewhere\",\"read_bytes\":0")
fuse(reading-gemm-between joined gemm_other_operand RANKS 2 OPTIONS --has "\"by\":\"GEMM\",\"m\":4,\"n\":4,\"k\":4,\"trans\":\"nn\".*\"reads\":\"inside\",\"read_bytes\":64" --has "\"event\":\"process\",\"version\":\"[0-9.]+\",\"nccl\":[1-9].*\"cuda\":[1-9].*MIN_BYTES=0.*\"command\":\".*fuse 2 reading")
fuse(strided-batch-2 joined gemm_batch RANKS 2)
# A batch that shares the gathered operand.
foreach(case bn-shared at-shared bn-shared-beta an-shared-add bt-shared-add)
  fuse(${case} fused "" RANKS 2 3 4 OPTIONS ${each_chunk} --has "\"api\":\"GemmStridedBatchedEx\"")
endforeach()
# A GEMM that writes to `send` runs behind the gather once; then the shard moves out of there first, where peers can read its place in the receive
# buffer. (The buffers are smaller than what the cache keeps by default.)
set(moves --set SLIPRING_ALLOC_MIN=1 --set SLIPRING_PROTOCOL=pull --set SLIPRING_SPLIT_K=all --set SLIPRING_FLOP_PER_BYTE=0)
foreach(case c-in-send shared-c-in-send an-c-in-send c-in-send-other-stream)
  fuse(${case} both gemm_overlap RANKS 2 4 OPTIONS ${moves} --has "\"moved\":1")
endforeach()
fuse(c-in-send both gemm_overlap RANKS 3 SUFFIX _chunks OPTIONS ${moves} --set SLIPRING_CHUNKS=5 --set SLIPRING_SLOT_BYTES=20000)
fuse(c-in-send-written joined gemm_overlap RANKS 2 OPTIONS ${moves} --has "\"reason\":\"gemm_other_operand\",\"by\":\"GEMM\"")
fuse(c-in-send both gemm_overlap RANKS 2 SUFFIX _put OPTIONS ${moves} --set SLIPRING_PROTOCOL=put)
fuse(c-in-send joined gemm_overlap RANKS 2 SUFFIX _no_block)
# A sum over what is gathered that is not split runs beside the GEMM behind it, unless that, or what is between, could notice. The
# first two with a handle, which is given a workspace for each, show that it is.
set(seldom --set SLIPRING_FLOP_PER_BYTE=0 --hasnt "\"reason\":\"gemm_sum_type\",\"n\":([3-9]|1[0-9])")
set(beside ${seldom} --has "\"aside\":1" --hasnt "\"event\":\"joined\".*\"reason\":\"(gemm_[^s]|[^g])")
foreach(case both both-event other in-send in-send-event captured asked asked-event)
  fuse(${case} both gemm_sum_type PROGRAM aside RANKS 2 4 OPTIONS ${beside})
endforeach()
foreach(case both-lt both-event-lt in-send-lt captured-lt)
  fuse(${case} fused "" PROGRAM aside RANKS 2 4 OPTIONS ${beside})
endforeach()
foreach(case alone alone-event told told-event freed)
  fuse(${case} joined other_operation PROGRAM aside RANKS 2 4 OPTIONS ${seldom})
endforeach()
foreach(case reads-result reads-result-event writes-operand writes-operand-event)
  fuse(${case} joined gemm_overlap PROGRAM aside RANKS 2 4 OPTIONS ${seldom})
endforeach()
foreach(case third third-event)
  fuse(${case} joined gemm_other_operand PROGRAM aside RANKS 2 4 OPTIONS ${seldom})
endforeach()
# Not where the program has given the stream multiprocessors of its own.
mutant(aside_of_green)
set(green ${substituted} --set SLIPRING_FLOP_PER_BYTE=0 --has "\"reason\":\"gemm_sum_type\"")
run(e2e_aside_of_green 60 LIB ${contexts} ${run_sh} ${green} --hasnt "\"aside\":1" -- $<TARGET_FILE:aside> 2 both ENV TEST_CONTEXTS=current)
run(e2e_mutant_aside_of_green 60 LIB $<TARGET_FILE:contexts>:$<TARGET_FILE:mutant_aside_of_green> ${run_sh} ${green} --has "\"aside\":1"
  -- $<TARGET_FILE:aside> 2 both ENV TEST_CONTEXTS=current)
# A workspace that is not given for each call may be another thread's as well.
run(e2e_aside_shared 120 ${run_sh} ${substituted} --set SLIPRING_FLOP_PER_BYTE=0 --has "\"reason\":\"gemm_sum_type\"" -- $<TARGET_FILE:aside> 2 shared)
foreach(case once never)
  fuse(${case} joined gemm_sum_type PROGRAM aside RANKS 2 4 OPTIONS --set SLIPRING_FLOP_PER_BYTE=0)
endforeach()
fuse(both joined gemm_whole PROGRAM aside RANKS 2 SUFFIX _whole OPTIONS --set SLIPRING_PARTS=1)
fuse(both both gemm_sum_type PROGRAM aside RANKS 3 SUFFIX _chunks OPTIONS ${beside} ${each_chunk})
fuse(other-stream fused "" RANKS 2 4 OPTIONS --has "\"via\":\"event\"")
fuse(bn joined strict RANKS 2 SUFFIX _strict OPTIONS --set SLIPRING_STRICT=on)
fuse(bn joined fuse_off RANKS 2 SUFFIX _off OPTIONS --set SLIPRING_FUSE=off)
fuse(bn joined verify RANKS 2 SUFFIX _verify OPTIONS --set SLIPRING_VERIFY=1 --has "\"verified\":3,.*\"verify_bad\":0")

# Replicas: where cuBLAS has another kernel for each shape, all ranks still get the same bits. With the whole GEMM on one rank alone they do not:
# the program can see it.
set(same_bits ${run_sh} ${substituted} --set SOFTGPU_GEMM_KERNELS=1 --has "\"event\":\"fused\".*\"parts\":([4-9]|..),")
set(in_chunks --set SLIPRING_CHUNKS=7 --set SLIPRING_FLOP_PER_BYTE=1000000 --) # the last of seven chunks is a range of its own
foreach(n 2 3 4)
  run(e2e_same_bits_bn_${n} 120 ${same_bits} ${in_chunks} $<TARGET_FILE:same_bits> ${n} bn gemm 96 256 64)
  run(e2e_same_bits_at_${n} 120 ${same_bits} ${in_chunks} $<TARGET_FILE:same_bits> ${n} at gemm 96 256 64)
endforeach()
run(e2e_same_bits_odd_3 120 ${same_bits} ${in_chunks} $<TARGET_FILE:same_bits> 3 at gemm 97 251 63)
run(e2e_same_bits_lt_bn_3 120 ${same_bits} ${in_chunks} $<TARGET_FILE:same_bits> 3 bn lt 96 256 64)
run(e2e_same_bits_lt_at_2 120 ${same_bits} ${in_chunks} $<TARGET_FILE:same_bits> 2 at lt 97 251 63)
foreach(n 2 3 4)
  run(e2e_same_bits_an_every_chunk_${n} 120 ${same_bits} ${each_chunk} -- $<TARGET_FILE:same_bits> ${n} an gemm 96 256 64)
  run(e2e_same_bits_bt_every_chunk_${n} 120 ${same_bits} ${each_chunk} -- $<TARGET_FILE:same_bits> ${n} bt lt 97 251 63)
endforeach()
run(e2e_same_bits_every_chunk_3 120 ${same_bits} --set SLIPRING_CHUNKS=5 --set SLIPRING_FLOP_PER_BYTE=0
  -- $<TARGET_FILE:same_bits> 3 bn gemm 96 256 64)
run(e2e_same_bits_seen 120 ${run_sh} ${substituted} --status 1 --set SOFTGPU_GEMM_KERNELS=1
  -- $<TARGET_FILE:same_bits> 2 bn gemm 96 256 64 SLIPRING_STRICT=on)

# cuBLAS refuses the N-th GEMM of each rank, a later part of its first fused one (of three): the whole runs behind the gather, and results are exact.
set(seven_chunks --set SLIPRING_CHUNKS=7 --set SLIPRING_FLOP_PER_BYTE=0)
set(split_k --set SLIPRING_SPLIT_K=all --set SLIPRING_FLOP_PER_BYTE=0)
set(refusals # PROGRAM CASE RANKS N, and which options
  "fuse large-at 3 17 seven_chunks" # parts that are not neighbours, beta 2
  "fuse at-shared 4 3" "fuse bn-shared-beta 4 2"
  "fuse bn 2 2=14" # an internal error
  "fuse an-add-large 3 2 each_chunk" "fuse an-add-large 3 4 each_chunk" "fuse an-add-large 3 15 each_chunk" # the rest of the sum is added at once
  "fuse bt-add-large 4 2 paced" "fuse bt-beta-0 3 3 split_k"
  "fuse other-stream 3 2" # another stream still holds the gather
  "fuse_lt bn-beta 3 2" "fuse_lt at-c-apart 3 3" "fuse_lt an-add-large 3 5 each_chunk" "fuse_lt bt-add-c-apart 3 2 each_chunk"
  "fuse_narrow at-to-fp8 3 3" "fuse_narrow bn-rows 3 2" "fuse_narrow bn-gelu-aux 3 3")
foreach(case bn bn-beta at-beta device-scalars hgemm)
  foreach(n 2 3 4)
    list(APPEND refusals "fuse ${case} 4 ${n}")
  endforeach()
endforeach()
foreach(row IN LISTS refusals)
  separate_arguments(row)
  list(POP_FRONT row program case ranks n options)
  run(e2e_${program}_refused_${case}_${n} 120 ${run_sh} ${substituted} --set SOFTGPU_REFUSE_GEMM=${n}
    --has "\"event\":\"joined\".*\"reason\":\"gemm_part\",\"by\":\"GEMM\"" --has "\"event\":\"summary\".*\"fused\":2,"
    --hasnt "\"event\":\"communicator_failed\"" ${${options}} -- $<TARGET_FILE:${program}> ${ranks} ${case})
endforeach()

# Mutants of the library, with which results are wrong (status 1).
run(e2e_mutant_own_whole 120 WITH own_whole ${run_sh} --status 1 --set SLIPRING_MIN_BYTES=0 --set SOFTGPU_GEMM_KERNELS=1 ${in_chunks}
  $<TARGET_FILE:same_bits> 2 bn gemm 96 256 64)
run(e2e_mutant_not_kept 120 WITH not_kept ${run_sh} --status 1 --set SLIPRING_MIN_BYTES=0 --set SOFTGPU_REFUSE_GEMM=3 -- $<TARGET_FILE:fuse> 4 bn-beta)
run(e2e_mutant_sum_own_first 120 WITH sum_own_first ${run_sh} --status 1 --set SLIPRING_MIN_BYTES=0 --set SOFTGPU_GEMM_KERNELS=1 ${each_chunk}
  -- $<TARGET_FILE:same_bits> 3 an gemm 96 256 64)
run(e2e_mutant_sum_beta 120 WITH sum_beta ${run_sh} --status 1 --set SLIPRING_MIN_BYTES=0 --set SLIPRING_SPLIT_K=all ${each_chunk}
  -- $<TARGET_FILE:fuse> 2 an-beta-2)
run(e2e_mutant_not_put_back 120 WITH not_put_back ${run_sh} --status 1 --set SLIPRING_MIN_BYTES=0 --set SOFTGPU_REFUSE_GEMM=3
  -- $<TARGET_FILE:fuse> 4 at-beta)

# The gradient of a weight, accumulated in fp32, behind a gather on another stream; and the same in place.
run(e2e_fuse_gradient 60 ${run_sh} ${substituted} ${each_chunk} --has "\"form\":\"A/N\".*\"via\":\"event\"" -- $<TARGET_FILE:ag_gemm> --ranks 3 --form
  an --m 96 --n 64 --k 192 --beta 1 --iters 3 --check full --side-stream)
run(e2e_fuse_gradient_in_place 60 ${run_sh} ${substituted} ${each_chunk} --has "\"form\":\"A/N\".*\"via\":\"stream\"" -- $<TARGET_FILE:ag_gemm>
  --ranks 4 --form an --m 51 --n 33 --k 188 --beta 1 --iters 3 --check full --in-place --burst 3)

# Several GEMMs consume one gather in turn: the first on each stream in parts, the later ones whole, and nothing is joined before them.
foreach(case gate-up qkv small-first by-event with-gradient two-streams)
  set(consumers 4)
  if(case STREQUAL two-streams)
    set(consumers 8)
  endif()
  foreach(n 2 3)
    run(e2e_turns_${case}_${n} 120 ${run_sh} ${substituted} --has "\"event\":\"summary\".*\"fused\":${consumers},.*\"joined\":0,"
      --hasnt "\"event\":\"joined\"" -- $<TARGET_FILE:turns> ${n} ${case})
  endforeach()
endforeach()

# cublasLtMatmul.
foreach(case bn at bn-bias at-bias algo-refused)
  fuse(${case} fused "" PROGRAM fuse_lt RANKS 2 4 OPTIONS --has "\"api\":\"LtMatmul\"")
endforeach()
foreach(case bn-fp16 at-fp32 bn-tf32 bn-odd at-odd bn-beta bn-c-apart at-c-apart bn-relu at-relu-bias bn-gelu-bias at-gelu at-gelu-bias
    device-scalars default-stream algo-misaligned)
  fuse(${case} fused "" PROGRAM fuse_lt RANKS 3)
endforeach()
foreach(case large large-at at-odd)
  fuse(${case} fused "" PROGRAM fuse_lt RANKS 3 SUFFIX _chunks OPTIONS --set SLIPRING_CHUNKS=7 --set SLIPRING_FLOP_PER_BYTE=0)
endforeach()
foreach(case an-add bt-add an-add-odd bt-add-c-apart an-add-large)
  fuse(${case} fused "" PROGRAM fuse_lt RANKS 2 3 OPTIONS ${each_chunk} --has "\"form\":\"(A/N|B/T)\"")
endforeach()
fuse(an-add-large fused "" PROGRAM fuse_lt RANKS 4 SUFFIX _paced OPTIONS ${paced} --has "\"parts\":2,")
# Sums that are not split run aside: a call of cuBLASLt has its workspace with it.
fuse(an-beta-0 joined other_operation PROGRAM fuse_lt RANKS 2 OPTIONS --hasnt gemm_transpose)
fuse(an-beta-0 fused "" PROGRAM fuse_lt RANKS 2 SUFFIX _all OPTIONS ${each_chunk} --set SLIPRING_SPLIT_K=all)
fuse(an-add-bias joined other_operation PROGRAM fuse_lt RANKS 2 OPTIONS --hasnt gemm_epilogue)
fuse(an-add-fp16 joined other_operation PROGRAM fuse_lt RANKS 2 OPTIONS --hasnt gemm_sum_type)
fuse(an-add-device joined other_operation PROGRAM fuse_lt RANKS 2 OPTIONS --hasnt gemm_sum_scalars)
fuse(batch joined gemm_batch PROGRAM fuse_lt RANKS 2)
fuse(gelu-aux fused "" PROGRAM fuse_lt RANKS 2)
fuse(between joined other_operation PROGRAM fuse_lt RANKS 2)
foreach(case c-in-recv d-in-send bias-in-recv workspace-in-send)
  fuse(${case} joined gemm_overlap PROGRAM fuse_lt RANKS 2)
endforeach()
fuse(bn joined strict PROGRAM fuse_lt RANKS 2 SUFFIX _strict OPTIONS --set SLIPRING_STRICT=on)
run(e2e_off 60 ${run_sh} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_ENABLE=off --hasnt "substitute|communicator" -- $<TARGET_FILE:fuse> 2 bn)

# 8-bit operands with scale factors, and epilogues with more outputs.
set(blackwell --set SOFTGPU_LT_SM=100)
foreach(case bn-tensor at-tensor bn-rows at-rows bn-rows-uneven at-rows-uneven)
  fuse(${case} fused "" PROGRAM fuse_narrow RANKS 2 3 4)
endforeach()
foreach(case bn-unscaled bn-rows-fp32 at-rows-bias bn-rows-bias bn-to-fp8 at-to-fp8 bn-c-apart bn-squares at-squares bn-squares-uneven bn-gelu-aux at-gelu-aux
    bn-relu-aux at-relu-aux bn-gelu-aux-fp8 bn-dgelu at-drelu at-dgelu-bgrad at-drelu-bgrad bn-bgrada at-bgrada bn-bgradb at-bgradb)
  fuse(${case} fused "" PROGRAM fuse_narrow RANKS 2 3)
endforeach()
foreach(case bn-rows at-rows at-relu-aux bn-squares at-dgelu-bgrad)
  fuse(${case} fused "" PROGRAM fuse_narrow RANKS 3 SUFFIX _chunks OPTIONS --set SLIPRING_CHUNKS=7 --set SLIPRING_FLOP_PER_BYTE=0)
  fuse(${case} fused "" PROGRAM fuse_narrow RANKS 4 SUFFIX _parts OPTIONS --set SLIPRING_PARTS=3)
endforeach()
foreach(case bn-tiles at-tiles-uneven)
  fuse(${case} fused "" PROGRAM fuse_narrow RANKS 2 3 OPTIONS ${blackwell})
endforeach()
foreach(case an-tensor-add an-uneven-add)
  fuse(${case} fused "" PROGRAM fuse_narrow RANKS 2 4 OPTIONS ${blackwell} --set SLIPRING_FLOP_PER_BYTE=0 --has "\"form\":\"A/N\"")
endforeach()
# What can not be cut stays whole, and the log says for which attribute.
fuse(bn-amax joined gemm_attribute PROGRAM fuse_narrow RANKS 2 3 OPTIONS
  --has "\"reason\":\"gemm_attribute\",\"by\":\"GEMM\",\"attribute\":\"AMAX_D_POINTER\"")
fuse(bn-lines joined gemm_attribute PROGRAM fuse_narrow RANKS 2 3 OPTIONS
  --has "\"reason\":\"gemm_attribute\",\"by\":\"GEMM\",\"attribute\":\"B_SCALE_MODE\"")
fuse(an-tiles-add joined gemm_attribute PROGRAM fuse_narrow RANKS 2 3 OPTIONS
  --has "\"reason\":\"gemm_attribute\",\"by\":\"GEMM\",\"attribute\":\"A_SCALE_MODE\"" ${blackwell} --set SLIPRING_FLOP_PER_BYTE=0)
fuse(bn-drelu-bgrad joined gemm_epilogue PROGRAM fuse_narrow RANKS 2 3 OPTIONS
  --has "\"reason\":\"gemm_epilogue\",\"by\":\"GEMM\",\"attribute\":\"EPILOGUE\"")
fuse(bn-gelu-aux-beta joined gemm_epilogue PROGRAM fuse_narrow RANKS 2 3 OPTIONS
  --has "\"reason\":\"gemm_epilogue\",\"by\":\"GEMM\",\"attribute\":\"EPILOGUE\"")
fuse(bn-squares-few joined gemm_shape PROGRAM fuse_narrow RANKS 2 3)
fuse(at-relu-aux-few joined gemm_shape PROGRAM fuse_narrow RANKS 2 3)
# The scale factors' own gather is NCCL's, on the same stream: it does not join the large one, in either order.
set(large_only --set SLIPRING_MIN_BYTES=2000 --has "\"event\":\"substitute\"" --has "\"event\":\"pass\".*below_min_bytes")
foreach(n 2 3 4)
  foreach(case bn-rows-before bn-rows-behind at-rows-behind)
    run(e2e_fuse_narrow_${case}_${n} 120 ${run_sh} ${large_only} --has "\"event\":\"fused\"" --hasnt "\"event\":\"joined\""
      -- $<TARGET_FILE:fuse_narrow> ${n} ${case})
  endforeach()
  # Over the ring as well, on another communicator: waited for before the parts begin.
  run(e2e_fuse_narrow_bn-rows-elsewhere_${n} 120 ${run_sh} ${substituted} --has "\"event\":\"fused\"" --has "\"event\":\"joined\".*\"by\":\"GEMM\""
    -- $<TARGET_FILE:fuse_narrow> ${n} bn-rows-elsewhere)
  # A small gather of what the large one brings waits for it.
  run(e2e_fuse_narrow_bn-of-large_${n} 120 ${run_sh} ${large_only} --has "\"event\":\"joined\".*\"by\":\"ncclAllGather\""
    --hasnt "\"event\":\"fused\"" -- $<TARGET_FILE:fuse_narrow> ${n} bn-of-large)
endforeach()
run(e2e_mutant_scale_not_moved 120 WITH scale_not_moved ${run_sh} --status 1 --set SLIPRING_MIN_BYTES=0 -- $<TARGET_FILE:fuse_narrow> 2 bn-rows)
run(e2e_mutant_aux_not_moved 120 WITH aux_not_moved ${run_sh} --status 1 --set SLIPRING_MIN_BYTES=0 -- $<TARGET_FILE:fuse_narrow> 2 bn-relu-aux)
run(e2e_mutant_amax_of_last 120 WITH amax_of_last ${run_sh} --status 1 --set SLIPRING_MIN_BYTES=0 -- $<TARGET_FILE:fuse_narrow> 3 bn-amax)
run(e2e_mutant_scales_not_awaited 120 WITH scales_not_awaited ${run_sh} --status 1 --set SLIPRING_MIN_BYTES=0
  -- $<TARGET_FILE:fuse_narrow> 2 bn-rows-elsewhere)

# Memory that a GEMM uses by other ways than its operands, in buffers of gathers and reduce-scatters.
set(spaces --set SLIPRING_MIN_BYTES=0 --set SLIPRING_ALLOC_MIN=4K --set SLIPRING_FLOP_PER_BYTE=0 --set SLIPRING_REDUCE_SCATTER=always --set RANKS_SECONDS=60)
run(e2e_workspace 120 ${run_sh} ${spaces} --has "\"event\":\"joined\".*\"reason\":\"gemm_overlap\"" -- $<TARGET_FILE:workspace> 2 all 64 32 512 2)
set_tests_properties(e2e_workspace PROPERTIES ENVIRONMENT_MODIFICATION TEST_RACE=set:strict)
run(e2e_workspace_reset 60 ${run_sh} ${spaces} --has "\"event\":\"fused\"" --hasnt "\"event\":\"joined\".*\"reason\":\"gemm_overlap\""
  -- $<TARGET_FILE:workspace> 3 ex-reset-send 64 32 512 3)
if(NOT SLIPRING_SANITIZE)
  run(e2e_workspace_plain 60 ${run_sh} --plain --hasnt . -- $<TARGET_FILE:workspace> 2 all 64 32 512 1)
endif()
set(space_mutant ${spaces} --set RANKS_SECONDS=2 -- $<TARGET_FILE:workspace> 2)
run(e2e_mutant_no_workspace 120 WITH no_workspace ${run_sh} --status 1 --set SLIPRING_MIN_BYTES=0 ${space_mutant} ex-consumed-send 64 32 512 3)
run(e2e_mutant_bits_untold 120 WITH bits_untold ${run_sh} --status 1 --set SLIPRING_MIN_BYTES=0 ${space_mutant} bits-recv 64 32 512 3)
run(e2e_mutant_scalars_not_awaited 120 WITH scalars_not_awaited ${run_sh} --status 1 --set SLIPRING_MIN_BYTES=0 ${space_mutant} ex-scalars-recv 64 32
  512 3)

# The ways of a call site are tried (plugin/trials/trials.h): results are exact whichever it is, on all ranks.
set(trials --set SLIPRING_MIN_BYTES=0 --set SLIPRING_TRIALS=1 --set SLIPRING_TRIALS_AFTER=4)
set(tried ${trials} --has "\"event\":\"tried\"" --has "\"event\":\"count\".*\"reason\":\"trial\"")
set(rounds --m 64 --n 96 --k 64 --iters 2 --check full --check-rounds 60 --burst 3 --poison)
foreach(n 2 3 4)
  run(e2e_trials_${n} 120 ${run_sh} ${tried} -- $<TARGET_FILE:ag_gemm> --ranks ${n} ${rounds})
endforeach()
run(e2e_trials_threads 120 ${run_sh} ${tried} -- $<TARGET_FILE:ag_gemm> --threads 2 ${rounds})
run(e2e_trials_event 120 ${run_sh} ${tried} -- $<TARGET_FILE:ag_gemm> --ranks 2 ${rounds} --side-stream)
run(e2e_trials_lt 120 ${run_sh} ${tried} -- $<TARGET_FILE:ag_gemm> --ranks 2 ${rounds} --api lt --form at)
run(e2e_trials_narrow 120 ${run_sh} --set SLIPRING_MIN_BYTES=2000 --set SLIPRING_TRIALS=1 --set SLIPRING_TRIALS_AFTER=4 --has "\"event\":\"tried\""
  --has "\"event\":\"fused\"" -- $<TARGET_FILE:fuse_narrow> 2 bn-rows-behind 120)
run(e2e_trials_in_place 120 ${run_sh} ${tried} -- $<TARGET_FILE:ag_gemm> --ranks 3 ${rounds} --in-place --beta 2)
run(e2e_trials_gather 120 ${run_sh} ${tried} -- $<TARGET_FILE:ag_gemm> --ranks 2 --bytes 5001 --iters 100 --check full --check-rounds 40)
run(e2e_trials_two_comms 120 ${run_sh} ${tried} -- $<TARGET_FILE:ag_gemm> --ranks 2 ${rounds} --comms 2)
run(e2e_trials_two_streams 120 ${run_sh} ${tried} -- $<TARGET_FILE:ag_gemm> --ranks 2 ${rounds} --streams 2)
# A rank that wants none, or a program that wants the same bits again: none are.
run(e2e_trials_off 60 ${run_sh} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_TRIALS=0 --set SLIPRING_TRIALS_AFTER=4
  --hasnt "\"reason\":\"trial\"|\"event\":\"tried\"" -- $<TARGET_FILE:ag_gemm> --ranks 2 ${rounds})
run(e2e_trials_reproducible 60 ${run_sh} ${trials} --set CUBLAS_WORKSPACE_CONFIG=:4096:8 --hasnt "\"reason\":\"trial\"|\"event\":\"tried\""
  -- $<TARGET_FILE:ag_gemm> --ranks 2 ${rounds})
# Strict: no parts, whatever is tried.
run(e2e_trials_strict 60 ${run_sh} ${tried} --set SLIPRING_STRICT=on --hasnt "\"event\":\"fused\"" -- $<TARGET_FILE:ag_gemm> --ranks 2 ${rounds})
# A group of one is its call: tried, chosen and fused as such. In one with others it is as well, when a GEMM is behind it.
foreach(group "" one+ two+)
  string(REPLACE + _ name "trials_group_${group}gemm")
  run(e2e_${name} 60 ${run_sh} ${tried} --has "\"event\":\"summary\".*\"fused\":[1-9]" -- $<TARGET_FILE:call_sites> 2 ${group}gemm:200)
endforeach()
# Gathers in groups without a GEMM: trials that would measure nothing end. What the program takes decides, where there is more than one round of
# it; trials begin when some gathers come alone.
run(e2e_trials_grouped 60 ${run_sh} ${trials} --set SLIPRING_TRIALS=3 --set SLIPRING_TRIALS_AFTER=48 --has "\"event\":\"duel\".*\"sites\":1"
  --hasnt "\"event\":\"tried\"" -- $<TARGET_FILE:call_sites> 2 two+alone:600)
run(e2e_trials_grouped_short 60 ${run_sh} ${trials} --has "\"reason\":\"trial\",\"n\":4[,}]" --hasnt "\"event\":\"(tried|duel)\""
  -- $<TARGET_FILE:call_sites> 3 two+alone:120)
run(e2e_trials_grouped_first 60 ${run_sh} ${tried} --set SLIPRING_TRIALS_AFTER=48 -- $<TARGET_FILE:call_sites> 2 two+alone:100 gemm:200)
# Gathers below SLIPRING_MIN_BYTES, where that is only where the search begins.
foreach(case tried alone obeyed many known nccl)
  if(case STREQUAL nccl AND SLIPRING_SANITIZE) # by the clock of the timing model
    continue()
  endif()
  run(e2e_small_${case} 300 ${CMAKE_CURRENT_SOURCE_DIR}/small.sh ${case} $<TARGET_FILE:call_sites>)
endforeach()
# Random programs: sites go the way that their own lines in the log say is best.
add_test(NAME e2e_trials_tuned COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tuned.py $<TARGET_FILE:iterations> $<TARGET_FILE:slipring>
  ${SOFTGPU_DIR} --seeds 1..2 --calls 3000 --jobs 1)
set_tests_properties(e2e_trials_tuned PROPERTIES TIMEOUT 300 LABELS e2e ENVIRONMENT "TEST_PRELOAD_FIRST=${SLIPRING_PRELOAD_FIRST}")
# And what is found is kept in the tune file.
foreach(case next off by_hand between changed grouped scatter ranks gpu broken jobs unwritable)
  if(case STREQUAL grouped AND SLIPRING_SANITIZE) # modelled times
    continue()
  endif()
  run(e2e_kept_${case} 120 ${CMAKE_CURRENT_SOURCE_DIR}/kept.sh ${case} $<TARGET_FILE:call_sites> $<TARGET_FILE:collectives> $<TARGET_FILE:scatter>)
endforeach()
# Over a slow link, with a GEMM that overlap makes worth while by a tenth: close, and so there is a duel. Which one it is for depends on
# how busy the machine is (unit_trials has both); results are exact.
set(duelling ${tried} --set SOFTGPU_TIMING=1 --set SLIPRING_CHUNKS=4 --set SLIPRING_FLOP_PER_BYTE=0
  --has "\"stage\":\"ways\".*\"by\":\"duel\"" --has "\"stage\":\"duel\".*\"by\":\"(ring|nccl)\"")
if(SLIPRING_SANITIZE)
  set(duelling ${duelling} --set SOFTGPU_LINK_GBS=0.0001 --set SOFTGPU_TFLOPS=0.00007)
else()
  set(duelling ${duelling} --set SOFTGPU_LINK_GBS=0.0002 --set SOFTGPU_TFLOPS=0.00014)
endif()
# Tests that a busy machine could turn have three places of those that run at a time, and come first.
set(undisturbed COST 100 PROCESSORS 3)
foreach(who ranks threads)
  run(e2e_trials_duel_${who} 120 ${run_sh} ${duelling} -- $<TARGET_FILE:ag_gemm> --${who} 2 --m 64 --n 96 --k 64 --iters 2 --check full --check-rounds
    38 --burst 3 --poison PROPERTIES ${undisturbed})
endforeach()
if(NOT SLIPRING_SANITIZE) # by the clock of the timing model
  # Words that take long: the ring is slow. A GEMM as long as its gather: overlap pays.
  set(modelled --set SOFTGPU_TIMING=1 --set SOFTGPU_COMPUTE=0 ${tried})
  run(e2e_trials_choose_nccl 120 ${run_sh} ${modelled} --set SOFTGPU_MEMOP_US=3000 --has "\"event\":\"tried\".*\"by\":\"nccl\""
    --has "\"reason\":\"measured\"" -- $<TARGET_FILE:ag_gemm> --ranks 2 --m 64 --n 96 --k 64 --iters 200 --check off --no-fill)
  # Behind the loops of the gather alone. So slow a device that what a busy host adds does not turn the choice; it can make a
  # duel of it, which is the ring's as long as nothing else is measured.
  run(e2e_trials_choose_ring 120 ${run_sh} ${modelled} --set SLIPRING_TRIALS_AFTER=170 --set SOFTGPU_QUEUE=200 --set SOFTGPU_LINK_GBS=0.35
    --set SOFTGPU_TFLOPS=0.28 --hasnt "\"reason\":\"measured\"" --has "\"event\":\"tried\".*\"m\":1024.*\"by\":\"(ring|duel)\""
    -- $<TARGET_FILE:ag_gemm> --ranks 2 --m 1024 --n 2048 --k 1024 --iters 80 --check off --no-fill)
  # In its own time NCCL's gather is twice as fast as the ring's. But a GEMM beside it, which is as long as the ring's, is later
  # for it, and the program with it.
  run(e2e_trials_beside 120 ${run_sh} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_ALLOC_MIN=1 --set SLIPRING_TRIALS=5 --set SLIPRING_TRIALS_AFTER=8
    --set SOFTGPU_TIMING=1 --set SOFTGPU_COLLECTIVE_SHARE=1 --set SOFTGPU_MEMOP_US=1500 --set SOFTGPU_LINK_GBS=0.0006 --set SOFTGPU_TFLOPS=0.00001
    --has "\"event\":\"duel\".*\"by\":\"ring\"" --has "\"event\":\"site_way\".*\"by\":\"ring\".*\"reason\":\"program\""
    -- $<TARGET_FILE:call_sites> 2 beside:400)
  set_tests_properties(e2e_trials_choose_nccl e2e_trials_choose_ring e2e_trials_beside e2e_small_nccl PROPERTIES ${undisturbed})
  # All-reduces likewise, in the step of a backward pass: of what no GEMM has just computed, and of what one has.
  set(beside ${CMAKE_CURRENT_SOURCE_DIR}/beside.sh)
  foreach(kind bucket dgrad)
    foreach(by ring nccl)
      run(e2e_trials_beside_${kind}_${by} 120 ${beside} ${kind} ${by} $<TARGET_FILE:call_sites> PROPERTIES ${undisturbed})
    endforeach()
  endforeach()
  run(e2e_mutant_program_unasked 120 WITH program_unasked ${caught_sh} ".event.:.site_way.*.by.:.nccl.,.reason.:.measured." ${beside} bucket ring
    $<TARGET_FILE:call_sites> PROPERTIES ${undisturbed})
  run(e2e_mutant_program_unheard 120 WITH program_unheard ${caught_sh} ".event.:.site_way.*.by.:.ring.,.reason.:.program." ${beside} bucket nccl
    $<TARGET_FILE:call_sites> PROPERTIES ${undisturbed})
  run(e2e_mutant_producer_waits 120 WITH producer_waits ${caught_sh} ".event.:.tried.*.stage.:.ways.*.by.:.nccl." ${beside} dgrad ring
    $<TARGET_FILE:call_sites> PROPERTIES ${undisturbed})
endif()
