"""A reinforcement learning library: PPO(n_steps=, n_epochs=, batch_size=).learn(total_timesteps=)."""

import torch
from torch import nn


class PointEnv:
    num_envs = 2

    def reset(self):
        self.state = torch.randn(self.num_envs, 3)
        return self.state

    def step(self, actions):
        self.state = 0.9 * self.state + 0.1 * actions
        return self.state, -self.state.pow(2).sum(1)


class RolloutBuffer:
    def __init__(self, n_steps, n_envs):
        self.n_steps, self.n_envs, self.rows = n_steps, n_envs, []

    def get(self, batch_size):
        parts = [torch.cat(part) for part in zip(*self.rows, strict=True)]
        order = torch.randperm(self.n_steps * self.n_envs)
        for start in range(0, len(order), batch_size):
            yield [part[order[start : start + batch_size]] for part in parts]


class PPO:
    def __init__(self, env, n_steps=2048, batch_size=64, n_epochs=10, learning_rate=3e-4, seed=None):
        torch.manual_seed(seed or 0)
        self.env, self.n_steps, self.batch_size, self.n_epochs = env, n_steps, batch_size, n_epochs
        self.policy = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=learning_rate)
        self.num_timesteps = self._n_updates = 0
        self._last_obs = env.reset()

    def collect_rollouts(self):
        self.buffer = RolloutBuffer(self.n_steps, self.env.num_envs)
        for _ in range(self.n_steps):
            with torch.no_grad():
                actions = self.policy(self._last_obs) + 0.3 * torch.randn(self.env.num_envs, 3)
            new_obs, rewards = self.env.step(actions)
            self.buffer.rows.append((self._last_obs, actions, rewards))
            self._last_obs = new_obs
            self.num_timesteps += self.env.num_envs

    def train(self):
        for _epoch in range(self.n_epochs):
            for obs, actions, rewards in self.buffer.get(self.batch_size):
                log_prob = -(actions - self.policy(obs)).pow(2).sum(1)
                loss = -(log_prob * (rewards - rewards.mean())).mean()
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
                self.optimizer.step()
        self._n_updates += self.n_epochs

    def learn(self, total_timesteps, log_interval=1):
        self._total_timesteps = total_timesteps
        while self.num_timesteps < self._total_timesteps:
            self.collect_rollouts()
            self.train()
            if self._n_updates % (log_interval * self.n_epochs) == 0:
                print(f"timesteps {self.num_timesteps} n_updates {self._n_updates}")
        return self


n_steps = 64
n_epochs = 4
model = PPO(PointEnv(), n_steps=n_steps, n_epochs=n_epochs, batch_size=32, seed=3)
model.learn(total_timesteps=2500)
