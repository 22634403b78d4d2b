//! Acceptance cases of the token samplers, through their cursors.
#![allow(clippy::unwrap_used)] // helpers of tests, where a panic is the report

mod awrs;
mod direct;
mod draws;
#[path = "../shared/leaves.rs"]
mod leaves;
mod proposals;
mod sets;
mod support;
mod units;
