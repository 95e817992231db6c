#!/usr/bin/env bash
# Tests the tests: makes one mistake after the other on purpose and lists which tests notice. Fails if one goes unnoticed.
#
#   engine/tests/seeded_bugs.sh             each mistake, against the suites that are meant to notice it
#   engine/tests/seeded_bugs.sh BUG...      these mistakes only
#   engine/tests/seeded_bugs.sh --all BUG   one mistake, against every suite
#
# A mistake stands where a real one would, behind the feature `seeded-bugs`, and is chosen when a test starts: so one
# build has them all, and no dependency is built anew. `model` is the commit queue under loom, a build of its own.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CARGO_TERM_COLOR=never
# Suites that still run then hang, which is noticed too. Far more than they need, else a slow machine would notice all.
SECONDS_MAX="${SECONDS_MAX:-300}"

# The mistake, and who is meant to notice: `model`, `<package>` for its unit tests, or a file of its tests.
bugs() {
  cat <<'LIST'
ack_before_sync            model log_simulation
retry_sync                 model log_simulation
forget_to_wake             model
reuse_position             model log_failures
rewind_keeps_bytes         model log_failures
ignore_short_write         model log_failures
short_write_is_whole       sessionlog
fence_not_checked          log_failures
synced_too_far             log_simulation
drop_dir_sync_at_create    log_failures log_simulation
drop_dir_sync_at_roll      log_failures log_simulation
drop_dir_sync_at_fork      log_fork
drop_dir_sync_at_rename    log_fork
drop_dir_sync_at_replace   log_failures log_budget
drop_dir_sync_of_session   store
drop_dir_sync_of_home      store
sync_dir_does_nothing      sessionlog
replace_not_synced         log_packed log_failures
compress_without_read_back log_packed
skip_block_crc             log_packed
skip_body_crc              hostile log_exhaustive
footer_trusted_without_crc hostile log_exhaustive
skip_chain_check           log_exhaustive
cut_at_damage              log_exhaustive
torn_tail_when_witnessed   log_exhaustive
eio_is_the_end             log_failures
epoch_not_raised           log_failures log_simulation
quarantine_not_synced      log_failures log_budget
recovery_not_synced        log_simulation
recovery_syncs_in_place    log_failures log_simulation
forget_to_wake_a_follower  follow
follower_skips_after_replace follow
trust_a_stale_mark         snapshots
trust_a_young_stamp        catalog_checks
trust_a_stamp_before_space catalog_checks memory_index
snapshots_outlive_erasure  snapshots
covers_what_it_forgot      properties snapshots
artifact_not_synced        artifacts collection
artifact_name_not_synced   artifacts collection
artifact_hash_not_checked  artifacts
artifact_doubt_forgotten   artifacts artifact_forks
artifact_not_touched       collection
fork_leaves_artifacts      artifacts
full_disk_loses_results    artifacts
gc_without_lineage         collection
gc_without_leases          collection
gc_without_grace           collection
gc_reads_around_damage     collection
gc_ignores_who_came_back   collection
gc_lists_among_others      collection
start_not_durable          work stories
second_result_wins         laws
second_result_taken        laws
unknown_rerun              recovery_points recovery_faults
deliver_twice              recovery_points recovery_cuts recovery_faults
LIST
}

ENGINE=(-p sessionlog -p sessionlog-projections -p sessionlog-codec --features sessionlog/seeded-bugs --locked)

# Runs the given suites with the mistake in `$SESSIONLOG_SEEDED_BUG`. Prints `suite: test` for each that notices.
run() {
  local suites=() model="" suite status=0
  for suite in "$@"; do
    case "$suite" in
      model) model=1 ;;
      all) suites=(--tests) model=1 ;;
      sessionlog) suites+=(--lib) ;;
      *) suites+=(--test "$suite") ;;
    esac
  done
  if [ -n "$model" ]; then
    RUSTFLAGS="--cfg loom" timeout "$SECONDS_MAX" cargo test -p sessionlog --features seeded-bugs --locked --lib \
      -- log::model >"$output" 2>&1 || status=$?
    noticed model "$status"
  fi
  if [ ${#suites[@]} -gt 0 ]; then
    status=0
    timeout "$SECONDS_MAX" cargo test "${ENGINE[@]}" "${suites[@]}" --no-fail-fast >"$output" 2>&1 || status=$?
    noticed "" "$status"
  fi
}

noticed() {
  awk -v suite="$1" -v status="$2" '
    /^thread .* panicked at/ && panicked == "" { panicked = $2; gsub(/\047/, "", panicked) }
    $1 == "Running" { name = $2 == "unittests" ? "unit tests" : $2 }
    /^test .* FAILED$/ { show($2) }
    function show(test) {
      where = suite
      if (where == "") { where = name; sub(/^tests\//, "", where); sub(/\.rs$/, "", where) }
      sub(/^log::model::/, "", test)
      print where ": " test; shown++
    }
    END { if (status == 124) show("(hangs)"); else if (status != 0 && !shown) show(panicked) }
  ' "$output"
}

output=$(mktemp)
regressions() { find codec projections engine -name '*.proptest-regressions' | sort; }
regressions_before=$(regressions)
# What a property test keeps of its failures is of no use here: the mistake was in the code.
clean_up() {
  rm -f "$output"
  comm -13 <(echo "$regressions_before") <(regressions) | xargs -r rm -f
}
trap clean_up EXIT
every_suite=""
if [ "${1:-}" = --all ]; then every_suite=1; shift; fi

# Each mistake that can be made is in the list, and the other way round.
made=$(grep -rhoE 'seeded::is\("[a-z_]+"' codec/src projections/src engine/src | cut -d'"' -f2 | sort -u)
listed=$(bugs | cut -d' ' -f1 | sort -u)
if [ "$made" != "$listed" ]; then
  echo "in the code and not in the list, or the other way round:" >&2
  comm -3 <(echo "$made") <(echo "$listed") >&2
  exit 1
fi

echo "building" >&2
cargo test "${ENGINE[@]}" --tests --no-run --quiet
RUSTFLAGS="--cfg loom" cargo test -p sessionlog --features seeded-bugs --locked --lib --no-run --quiet
# Without a mistake nobody may complain: else all that follows means nothing.
mapfile -t suites < <(bugs | awk '{ for (i = 2; i <= NF; i++) print $i }' | sort -u)
complaints=$(SECONDS_MAX=600 run "${suites[@]}")
if [ -n "$complaints" ]; then
  printf 'fails without a mistake:\n%s\n' "$complaints" >&2
  exit 1
fi

unnoticed=0
while read -r bug suites; do
  if [ $# -gt 0 ] && [[ " $* " != *" $bug "* ]]; then continue; fi
  [ -z "$every_suite" ] || suites=all
  # shellcheck disable=SC2086
  found=$(SESSIONLOG_SEEDED_BUG="$bug" run $suites)
  if [ -z "$found" ]; then
    printf '%-27s NOT NOTICED by %s\n' "$bug" "$suites"
    unnoticed=$((unnoticed + 1))
  else
    printf '%-27s %s\n' "$bug" "$(sed -n 1p <<<"$found")"
    sed -n '2,$p' <<<"$found" | sed 's/^/                            /'
  fi
done < <(bugs)
if [ "$unnoticed" -gt 0 ]; then echo "$unnoticed mistakes went unnoticed" >&2; exit 1; fi
